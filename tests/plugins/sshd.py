"""Keys and settings of the real sshd that hosts of tests run."""

import shlex
import subprocess
from pathlib import Path

from waiting import LIMIT_SECONDS

SSHD = "/usr/sbin/sshd"


def command(line: str, *, text: str | None = None) -> None:
    """Run a command line that must succeed, with this standard input."""
    done = subprocess.run(
        shlex.split(line),
        input=text,
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, f"{line}: {done.stderr}"


def make_key(path: Path) -> str:
    """Make a pair of keys without a passphrase, and return the public one."""
    command(f"ssh-keygen -q -t ed25519 -N '' -C test -f {shlex.quote(str(path))}")
    return path.with_name(f"{path.name}.pub").read_text()


def sshd_config(host_key: object, authorized_keys: object, *lines: str) -> str:
    """Return settings with nothing of the machine's own."""
    return "".join(
        f"{line}\n"
        for line in (
            f"HostKey {host_key}",
            f"AuthorizedKeysFile {authorized_keys}",
            "UsePAM no",
            "StrictModes no",
            "PasswordAuthentication no",
            *lines,
        )
    )
