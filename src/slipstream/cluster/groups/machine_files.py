"""Files of a machine: copies that add to what is there, and small files as texts.

Paths on the machine are relative to the home of its user; a leading ~ stands for it.
"""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from slipstream.cluster.engines.ssh_host import SSH_FAILED, CommandFailedError, SshHost
from slipstream.cluster.outside import outside
from slipstream.errors import ConfigError, PeerTimeoutError, UsageError

# Exit codes of rsync for a broken connection, and for a remote shell that could not be started.
_CONNECTION_CODES = (12, 30, SSH_FAILED)
LOOK_SECONDS = 5.0


def put(host: SshHost, source: Path, target: str = "", exclude: Sequence[str] = ()) -> None:
    """Copy a file or a folder to a machine.

    A folder's files are added to those of the target. A file whose target is a folder goes into it.

    Args:
        host: Machine.
        source: File or folder on this machine.
        target: Path on the machine (default "": the name of the source, in the home).
        exclude: Patterns of files that are left out, for rsync (default none).

    Raises:
        UsageError: there is no such file.
        ConfigError, PeerError: the machine cannot be reached.
        CommandFailedError: the copy failed, as when the folder of the target does not exist.
    """
    if not source.exists():
        raise UsageError(f"{source} does not exist, so it cannot be copied to {host.name}")
    place = f"{host.login}:{_inside(target or source.name)}"
    filters = [f"--exclude={pattern}" for pattern in exclude]
    ends = [f"{source}/", f"{place}/"] if source.is_dir() else [str(source), place]
    _rsync(host, [*filters, *ends], f"copying {source}")


def get(host: SshHost, source: str, target: Path) -> None:
    """Copy a file or a folder from a machine.

    Args:
        host: Machine.
        source: Path on the machine.
        target: Path on this machine; in a folder that exists, the copy keeps its name.

    Raises:
        ConfigError, PeerError: the machine cannot be reached.
        CommandFailedError: the copy failed.
    """
    _rsync(host, [f"{host.login}:{_inside(source)}", str(target)], f"fetching {source}")


def exists(host: SshHost, path: str) -> bool:
    """Return whether a machine has a file or folder."""
    script = f"test -e {_quoted(path)} && echo yes || true"
    return host.run(script, what=f"looking for {path}").strip() == "yes"


def read(host: SshHost, path: str) -> str:
    """Return the text of a file of a machine.

    Raises:
        CommandFailedError: the file cannot be read.
    """
    return host.run(f"cat {_quoted(path)}", what=f"reading {path}")


def write(host: SshHost, path: str, text: str) -> None:
    """Write a file of a machine in one step.

    Raises:
        CommandFailedError: the file cannot be written.
    """
    quoted = _quoted(path)
    host.run(f"cat > {quoted}.new && mv {quoted}.new {quoted}", what=f"writing {path}", text=text)


def wait_for_file(host: SshHost, path: str, seconds: float | None = None) -> None:
    """Return as soon as a machine has a file.

    Args:
        host: Machine.
        path: Path on the machine.
        seconds: Longest time to wait (default None: no limit).

    Raises:
        PeerTimeoutError: the file is not there after the longest time.
    """
    until = None if seconds is None else time.monotonic() + seconds
    while True:
        left = LOOK_SECONDS if until is None else max(until - time.monotonic(), 0.0)
        turns = int(min(left, LOOK_SECONDS) / 0.1) + 1
        script = (
            f"for turn in $(seq {turns}); do test ! -e {_quoted(path)} || {{ echo yes; exit; }};"
            " sleep 0.1; done"
        )
        if host.run(script, what=f"waiting for {path}").strip() == "yes":
            return
        if until is not None and time.monotonic() >= until:
            raise PeerTimeoutError(f"{host.name} has no file {path} after {seconds:g} s")


def _rsync(host: SshHost, arguments: Sequence[str], what: str) -> None:
    command = ["rsync", "-az", "-e", shlex.join(host.argv[:-1]), *arguments]
    with outside(f"rsync {what}"):
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", check=False
            )
        except FileNotFoundError as error:
            raise ConfigError("rsync is not installed on this machine; install it") from error
    if done.returncode in _CONNECTION_CODES:
        host.run("command -v rsync", what="looking for rsync")  # names the cause, if it can
    if done.returncode != 0:
        said = "; ".join(done.stderr.strip().splitlines()[-3:])
        raise CommandFailedError(f"{host.name}: {what} failed: {said}")


def _inside(path: str) -> str:
    """Return a path that rsync takes as relative to the home."""
    return path.removeprefix("~/") if path != "~" else "."


def _quoted(path: str) -> str:
    return shlex.quote(_inside(path))
