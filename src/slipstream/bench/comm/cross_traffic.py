"""Cross traffic on the links of a lab: a rate-limited TCP connection from every host to the next.

    with cross_traffic(lab, "500mbit"):
        measure_something_in(lab)

As a program, this module runs on one host: `cross_traffic.py BYTES_PER_SECOND ADDRESS...`.
BYTES_PER_SECOND is the rate of the host's connection; the addresses are those of all hosts.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from slipstream.errors import SlipstreamError
from slipstream.lab import Lab
from slipstream.lab.rates import parse_rate
from slipstream.settings import detect_launcher

START_SECONDS = 30.0  # time limit in seconds until all connections carry data
CHUNK = bytes(1 << 18)
STARTED = "started"  # line that a host prints when its connection carries data

_SO_MAX_PACING_RATE = 47  # socket option of Linux that Python's `socket` module does not define


@contextmanager
def cross_traffic(lab: Lab, rate: str) -> Generator[None, None, None]:
    """Let every host of a lab send data to the next host until the `with` block ends.

    Args:
        lab: Running lab with at least two hosts.
        rate: Highest bit rate of each host's connection, such as 500mbit.

    Raises:
        SlipstreamError: a connection did not start.
    """
    program = [sys.executable, "-m", "slipstream.bench.comm.cross_traffic"]
    run = lab.start([*program, str(parse_rate(rate) // 8), *lab.addresses], ranks_per_host=1)
    try:
        deadline = time.monotonic() + START_SECONDS
        while any(run.last_line(host) != STARTED for host in range(lab.spec.hosts)):
            if time.monotonic() > deadline or not run.is_running:
                raise SlipstreamError(f"cross traffic did not start: {run.wait(0.0).failure}")
            time.sleep(0.01)
        yield
    finally:
        run.end()


def main(bytes_per_second: int, addresses: Sequence[str]) -> None:
    """Send data to the next host and receive data from the previous host; never return.

    Args:
        bytes_per_second: Rate of this host's connection in bytes per second.
        addresses: Addresses of all hosts.
    """
    launch = detect_launcher()
    rank, port = launch.rank, launch.master_port
    listener = socket.create_server((addresses[rank], port))
    threading.Thread(target=_drain, args=(listener,), daemon=True).start()
    with _connect(addresses[(rank + 1) % len(addresses)], port) as stream:
        stream.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, bytes_per_second)
        stream.sendall(CHUNK)
        print(STARTED, flush=True)
        while True:
            stream.sendall(CHUNK)


def _drain(listener: socket.socket) -> None:
    stream, _ = listener.accept()
    buffer = bytearray(len(CHUNK))
    while stream.recv_into(buffer):
        pass


def _connect(address: str, port: int) -> socket.socket:
    """Return a connection to a host that may not listen yet."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return socket.create_connection((address, port), START_SECONDS)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
