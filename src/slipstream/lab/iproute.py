"""The programs ip and tc, fed with many commands at once."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from slipstream.errors import UnsupportedError

LIMIT_SECONDS = 30.0


def check_permission() -> None:
    """Do nothing where a lab can be made.

    Raises:
        UnsupportedError: this process is not root, or ip, tc or setpriv are missing.
    """
    if os.geteuid() != 0:
        raise UnsupportedError(
            f"a lab makes network namespaces, which user {os.geteuid()} may not; run it as root,"
            " or in a user namespace: unshare --user --map-root-user --mount --net sh -c"
            " 'mount -t tmpfs lab /run && slipstream lab ...'"
        )
    for program, package in (("ip", "iproute2"), ("tc", "iproute2"), ("setpriv", "util-linux")):
        if _find(program) is None:
            raise UnsupportedError(
                f"a lab needs the program {program}, which is not there; install {package}"
            )


def run_batch(program: str, namespace: str | None, lines: Sequence[str]) -> None:
    """Have ip or tc carry out commands in order, in a network namespace; the first failure ends it.

    Raises:
        UnsupportedError: one failed; it says which, and what the program said.
    """
    if lines:
        _run([program, *_in(namespace), "-batch", "-"], "\n".join(lines) + "\n")


def run_inside(namespace: str, command: Sequence[str]) -> None:
    """Run a short command in a network namespace.

    Raises:
        UnsupportedError: it failed.
    """
    _run(["ip", "netns", "exec", namespace, *command], "")


def query(program: str, namespace: str | None, *arguments: str) -> list[dict[str, Any]]:
    """Return what ip or tc tells as JSON."""
    output = _run([program, *_in(namespace), "-s", "-j", *arguments], "")
    return json.loads(output) if output.strip() else []


def namespaces() -> set[str]:
    """Return the names of all network namespaces."""
    return {item["name"] for item in query("ip", None, "netns", "list")}


def processes(namespace: str) -> list[int]:
    """Return the processes that are in a network namespace."""
    return [int(word) for word in _run(["ip", "netns", "pids", namespace], "").split()]


def _in(namespace: str | None) -> list[str]:
    return ["-n", namespace] if namespace else []


def _find(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")


def _run(command: list[str], lines: str) -> str:
    done = subprocess.run(
        [_find(command[0]) or command[0], *command[1:]],
        input=lines,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        env={**os.environ, "LC_ALL": "C"},
        check=False,
    )
    if done.returncode != 0:
        shown = _failed_line(done.stderr, lines) or " ".join(command)
        raise UnsupportedError(f"{shown!r} failed: {done.stderr.strip()}; see what the kernel has")
    return done.stdout


def _failed_line(errors: str, lines: str) -> str:
    """Return the command of a batch that failed: the program says `Command failed -:7`."""
    _, found, number = errors.strip().rpartition("Command failed -:")
    return lines.splitlines()[int(number) - 1][:200] if found and number.isdigit() else ""
