"""Calls of the programs ip and tc; one call can run many commands (option `-batch`)."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slipstream.errors import UnsupportedError

LIMIT_SECONDS = 30.0  # time limit in seconds for one call


def check_permission() -> None:
    """Check that this process can make a lab.

    Raises:
        UnsupportedError: this process is not root, or ip, tc or setpriv is missing.
    """
    if os.geteuid() != 0:
        raise UnsupportedError(
            f"a lab makes network namespaces, which user {os.geteuid()} is not allowed; run it as"
            " root, or in a user namespace: unshare --user --map-root-user --mount --net sh -c"
            " 'mount -t tmpfs lab /run && slipstream lab ...'"
        )
    for program, package in (("ip", "iproute2"), ("tc", "iproute2"), ("setpriv", "util-linux")):
        if _find(program) is None:
            raise UnsupportedError(
                f"a lab needs the program {program}, which is not installed; install {package}"
            )


def run_batch(program: str, namespace: str | None, lines: Sequence[str]) -> None:
    """Let ip or tc run commands one by one in a network namespace; the first failure ends the call.

    Args:
        program: "ip" or "tc".
        namespace: Name of the network namespace; None for the namespace of this process.
        lines: Commands, without the name of the program.

    Raises:
        UnsupportedError: a command failed; the message has the command and the program's output.
    """
    if lines:
        _run([program, *_in(namespace), "-batch", "-"], "\n".join(lines) + "\n")


def run_inside(namespace: str, command: Sequence[str]) -> None:
    """Run a short command in a network namespace.

    Raises:
        UnsupportedError: the command failed.
    """
    _run(["ip", "netns", "exec", namespace, *command], "")


def query(program: str, namespace: str | None, *arguments: str) -> list[dict[str, Any]]:
    """Return the parsed JSON output of ip or tc."""
    output = _run([program, *_in(namespace), "-s", "-j", *arguments], "")
    return json.loads(output) if output.strip() else []


def namespaces() -> set[str]:
    """Return the names of all network namespaces."""
    return {item["name"] for item in query("ip", None, "netns", "list")}


def processes(namespace: str | None) -> list[int]:
    """Return the ids of the processes in a network namespace; none if the namespace was removed.

    Args:
        namespace: Name of the network namespace; None for all processes of this machine.
    """
    if namespace is None:
        return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    try:
        output = _run(["ip", "netns", "pids", namespace], "")
    except UnsupportedError:
        if namespace in namespaces():
            raise
        return []
    return [int(word) for word in output.split()]


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
        failed = _failed_line(done.stderr, lines) or " ".join(command)
        raise UnsupportedError(
            f"{failed!r} failed: {done.stderr.strip()}; check whether the kernel supports it"
        )
    return done.stdout


def _failed_line(errors: str, lines: str) -> str:
    """Return the command at which a batch failed, or "" if the errors do not name its line.

    In the error output of ip and tc, `Command failed -:7` stands for the seventh line of the batch.
    """
    _, marker, number = errors.strip().rpartition("Command failed -:")
    return lines.splitlines()[int(number) - 1][:200] if marker and number.isdigit() else ""
