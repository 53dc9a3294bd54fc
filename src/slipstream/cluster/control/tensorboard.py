"""TensorBoard on a host of a run, and the way to it through ssh."""

from __future__ import annotations

import shlex
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from slipstream.cluster.control.reached_hosts import ReachedHost
from slipstream.cluster.launch.ports import find_free_port_pair
from slipstream.cluster.outside import outside
from slipstream.errors import ConfigError, PeerError, PeerTimeoutError

# Longest time from the start of TensorBoard, which imports much, to its first answer.
START_SECONDS = 120.0
LOOK_SECONDS = 0.2
CLOSE_SECONDS = 10.0

# Prints a free port and the command of TensorBoard.
_LOOK = """\
port=$({python} -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0));
print(s.getsockname()[1])')
if {python} -c 'import tensorboard' 2> /dev/null; then echo $port {python} -m tensorboard.main
elif command -v tensorboard > /dev/null; then echo $port tensorboard
else echo $port; fi
"""

# TensorBoard ends when our input does, so also when the connection is lost.
_SERVE = """\
exec 3<&0
{command} --logdir {folder} --host 127.0.0.1 --port {port} &
(cat <&3 > /dev/null; kill $!) &
wait %1
"""


@contextmanager
def tensorboard(
    host: ReachedHost, shell: Sequence[str], folder: str, python: str
) -> Generator[tuple[str, subprocess.Popen[bytes]]]:
    """Start TensorBoard on a host; yield its address on this machine, and the process to wait for.

    Args:
        host: Host with the files.
        shell: Command that runs a shell command there, up to that command: ssh with its options and
            the destination, or sh -c for this machine.
        folder: Folder with the files on the host.
        python: Path of the Python that may have TensorBoard.

    Raises:
        ConfigError: TensorBoard is not installed there.
        PeerError: TensorBoard ends at once, or never answers.
    """
    script = _LOOK.format(python=shlex.quote(python))
    port, _, command = host.run(script, what="looking for TensorBoard").strip().partition(" ")
    if not command:
        raise ConfigError(
            f"{host.name} has no TensorBoard; add it to the job (software.packages: [tensorboard]),"
            f" or call there: {python} -m pip install tensorboard"
        )
    serve = _SERVE.format(command=command, folder=shlex.quote(folder), port=port)
    local_port = int(port) if shell[0] != "ssh" else find_free_port_pair()
    argv = [*_forwarding(shell, local_port, int(port)), serve]
    with outside("ssh TensorBoard"):
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
    url = f"http://127.0.0.1:{local_port}/"
    try:
        _wait_until_it_answers(process, url, host.name)
        yield url, process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _forwarding(shell: Sequence[str], local_port: int, port: int) -> list[str]:
    """Return a command whose ssh also forwards a port, over a connection of its own."""
    if shell[0] != "ssh":
        return list(shell)
    own = ["-o", "ControlPath=none", "-o", "ExitOnForwardFailure=yes"]
    forward = ["-L", f"127.0.0.1:{local_port}:127.0.0.1:{port}"]
    return [shell[0], *own, *forward, *shell[1:]]


def _wait_until_it_answers(process: subprocess.Popen[bytes], url: str, name: str) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        code = process.poll()
        if code is not None:
            raise PeerError(f"TensorBoard on {name} has ended with exit code {code}")
        try:
            urllib.request.urlopen(url, timeout=START_SECONDS).close()
        except urllib.error.HTTPError:
            return  # it answers
        except OSError:
            time.sleep(LOOK_SECONDS)
        else:
            return
    raise PeerTimeoutError(f"TensorBoard on {name} does not answer after {START_SECONDS:g} s")
