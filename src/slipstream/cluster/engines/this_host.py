"""This machine as a host: the same commands and copies as over ssh."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from slipstream.cluster.engines.ssh_host import COPY_NAMED, CommandFailedError
from slipstream.cluster.head.storage.output_names import find_outputs
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

    def download(self, source: str, patterns: Sequence[str], target: Path) -> list[str]:
        """Copy files into another folder, with the folders in which they are.

        Args:
            source: Absolute path of the folder with the files.
            patterns: Paths or patterns relative to it.
            target: Folder that gets the copies.

        Returns:
            The patterns that match nothing.

        Raises:
            CommandFailedError: the copy failed.
            ConfigError: a path leads out of the folder; the others are copied.
        """
        found = find_outputs(Path(source), patterns)
        if found.names:
            files = "".join(f"{name}\0" for name in found.names)
            _run(["rsync", "-a", *COPY_NAMED, f"{source}/", f"{target}/"], "fetching", files)
        found.refuse_outside()
        return found.unmatched


def _run(argv: Sequence[str], what: str, text: str = "", seconds: float | None = None) -> str:
    with outside(what):
        try:
            done = subprocess.run(
                argv,
                input=text,
                capture_output=True,
                text=True,
                errors="surrogateescape",  # names of files may have any bytes
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
