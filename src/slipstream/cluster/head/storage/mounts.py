"""Mounts: `python -m slipstream.cluster.head.storage.mounts TABLE PROGRAM...` runs a program.

The storage is mounted in a mount namespace of the program's own. So no other program of the host
sees it, nothing that was mounted before is touched, and the kernel unmounts it when the program and
its children have ended, however they ended. Mounting needs the rights of root: this process has
them, or `sudo -n` gives them, and the program runs as the user again.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from slipstream.errors import ConfigError, SlipstreamError

MOUNT_SECONDS = 120.0
FAILED_CODE = 69  # EX_UNAVAILABLE of sysexits.h

_MODULE = ("-m", "slipstream.cluster.head.storage.mounts")
# Word in place of the table, with which the process calls itself as root in the new namespace.
_AS_ROOT = "--as-root"


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageMount:
    """Storage that is mounted for the ranks.

    Args:
        name: Name of the storage in the job file.
        kind: "nfs", "disk" or "folder".
        source: Server and path, device or file of a disk (or LABEL=..., UUID=...), or folder.
        target: Absolute path at which the ranks see it.
        filesystem: Type of the file system; "" for the one that mount(8) finds.
        options: Options for mount(8), separated by commas; perhaps "".
    """

    name: str
    kind: Literal["nfs", "disk", "folder"]
    source: str
    target: str
    filesystem: str = ""
    options: str = ""

    @property
    def argv(self) -> list[str]:
        """The command that mounts it."""
        kind = self.filesystem or ("nfs" if self.kind == "nfs" else "")
        argv = ["mount", *(["--bind"] if self.kind == "folder" else [])]
        argv += ["-t", kind] if kind else []
        argv += ["-o", self.options] if self.options else []
        return [*argv, "--", self.source, self.target]


def mounted_argv(
    python: str, mounts: Sequence[StorageMount], program: Sequence[str]
) -> tuple[str, ...]:
    """Return the command that runs a program which sees storage.

    Args:
        python: Path of Python on the host, whose environment has Slipstream.
        mounts: Storage to mount; if there is none, the program itself is returned.
        program: Program and its arguments.
    """
    if not mounts:
        return tuple(program)
    table = json.dumps([asdict(mount) for mount in mounts])
    return (python, *_MODULE, table, *program)


def _run_in_namespace(table: str, program: Sequence[str]) -> int:
    """Run the program in a new namespace; return its exit code.

    This process waits, because tmux ends a program that does not hold its terminal any more. The
    standard input of the child has what it must become, since sudo passes nothing else on.
    """
    unshare = ("unshare", "--mount", "--propagation", "slave", "--")
    lacks = [tool for tool in ("unshare", "mount") if shutil.which(tool) is None]
    if os.geteuid() != 0 and shutil.which("sudo") is None:
        lacks.append("sudo")
    if lacks:
        raise ConfigError(
            f"storage needs {' and '.join(lacks)}, which this host lacks; mounting needs the rights"
            " of root, by a login as root or by `sudo -n`"
        )
    after = {"table": table, "uid": os.getuid(), "gid": os.getgid(), "environ": dict(os.environ)}
    root = () if os.geteuid() == 0 else ("sudo", "-n", "--")
    with tempfile.TemporaryFile("w+") as memo:
        memo.write(json.dumps(after))
        memo.flush()
        memo.seek(0)
        argv = (*root, *unshare, sys.executable, *_MODULE, _AS_ROOT, *program)
        return subprocess.run(argv, stdin=memo, check=False).returncode


def _mount_and_become(program: Sequence[str]) -> None:
    """Mount the storage, and become the program as the user."""
    after: dict[str, Any] = json.load(sys.stdin)
    mounts = [StorageMount(**fields) for fields in json.loads(after["table"])]
    environ: Mapping[str, str] = after["environ"]
    for mount in mounts:
        _mount(mount, after["uid"], after["gid"])
    if after["uid"] != 0:
        os.initgroups(pwd.getpwuid(after["uid"]).pw_name, after["gid"])
        os.setgid(after["gid"])
        os.setuid(after["uid"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.execvpe(program[0], [*program], dict(environ))


def _mount(mount: StorageMount, uid: int, gid: int) -> None:
    target = Path(mount.target)
    if not target.exists():
        target.mkdir(parents=True)
        os.chown(target, uid, gid)
    try:
        done = subprocess.run(
            mount.argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=MOUNT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"the storage {mount.name} ({mount.source}) could not be mounted within"
            f" {MOUNT_SECONDS:g} s; can this host reach it?"
        ) from error
    if done.returncode != 0:
        said = "; ".join(done.stderr.strip().splitlines())
        raise ConfigError(
            f"the storage {mount.name} ({mount.source}) cannot be mounted at {mount.target}: {said}"
        )


def main() -> int:
    """Run the program on the command line; return its exit code."""
    table, *program = sys.argv[1:]
    try:
        if table == _AS_ROOT:
            _mount_and_become(program)
        else:
            return _run_in_namespace(table, program)
    except (SlipstreamError, OSError) as error:
        print(f"{os.uname().nodename}: {error}", file=sys.stderr)
    return FAILED_CODE


if __name__ == "__main__":
    sys.exit(main())
