"""This machine as a host: the same commands and copies as over ssh."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from slipstream.cluster.engines.ssh_host import CommandFailedError
from slipstream.cluster.outside import outside
from slipstream.errors import ConfigError, PeerError


class HostWithFiles(Protocol):
    """The interface of a host on which commands run, and which gets copies of folders."""

    @property
    def name(self) -> str:
        """Name of the host."""
        ...

    def run(self, script: str, *, what: str, text: str = "", seconds: float = 60.0) -> str:
        """Run a shell script and return its output."""
        ...

    def upload(self, folder: Path, target: str, exclude: Sequence[str] = ()) -> None:
        """Make a folder of the host equal to a folder of this machine."""


class ThisHost:
    """This machine, which needs no connection."""

    name = os.uname().nodename

    def run(self, script: str, *, what: str, text: str = "", seconds: float = 60.0) -> str:
        """Run a shell script and return its output.

        Args:
            script: Script for sh.
            what: Purpose of the script, for messages: "making the folder".
            text: Standard input (default "").
            seconds: Time limit in seconds (default 60).

        Raises:
            CommandFailedError: the script failed.
            PeerError: the script took too long.
        """
        return _run(["sh", "-c", script], what, text, seconds)

    def upload(self, folder: Path, target: str, exclude: Sequence[str] = ()) -> None:
        """Make a folder equal to another one.

        Args:
            folder: Folder to copy.
            target: Absolute path of the copy.
            exclude: Patterns of files that are left out (default none).

        Raises:
            CommandFailedError: the copy failed.
        """
        filters = [f"--exclude={pattern}" for pattern in exclude]
        _run(["rsync", "-a", "--delete", *filters, f"{folder}/", f"{target}/"], f"copying {folder}")

    def download(self, source: str, patterns: Sequence[str], target: Path) -> None:
        """Copy files into another folder, with the folders in which they are.

        Args:
            source: Absolute path of the folder with the files.
            patterns: Paths or patterns relative to it.
            target: Folder that gets the copies.

        Raises:
            CommandFailedError: the copy failed.
        """
        root = Path(source)
        names = [str(path.relative_to(root)) for each in patterns for path in root.glob(each)]
        options = ["--files-from=-", "--recursive"]
        _run(["rsync", "-a", *options, f"{source}/", f"{target}/"], "fetching", "\n".join(names))


def _run(argv: Sequence[str], what: str, text: str = "", seconds: float | None = None) -> str:
    with outside(what):
        try:
            done = subprocess.run(
                argv,
                input=text,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except FileNotFoundError as error:
            raise ConfigError(f"{argv[0]} is not installed on this machine; install it") from error
        except subprocess.TimeoutExpired as error:
            raise PeerError(f"{what} took longer than {seconds:g} s") from error
    if done.returncode != 0:
        said = "; ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise CommandFailedError(f"{what} failed with exit code {done.returncode}: {said}")
    return done.stdout
