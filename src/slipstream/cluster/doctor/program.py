"""The program that measures on a host; it needs Python's standard library only.

Its source is sent over ssh. It answers each line of JSON with one, and ends with its input. Nothing
is written to disk.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

PIECE = bytes(65536)
IP_MTU = 14  # Linux: the largest packet of a connection's route
PINGS = 21
WAIT_SECONDS = 3.0
DRAIN_SECONDS = 30.0  # for what the kernel still holds of a slow connection


def facts() -> dict[str, object]:
    """Return what this host has."""
    try:
        version = importlib.metadata.version("slipstream")
    except importlib.metadata.PackageNotFoundError:
        version = ""
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "slipstream": version,
        "tools": [tool for tool in ("tmux", "rsync", "git") if shutil.which(tool)],
        "cores": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "disk": shutil.disk_usage(os.path.expanduser("~")).free,
        "gpus": gpus(),
    }


def gpus() -> list[str]:
    """Return the names of the NVIDIA GPUs."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


def listen(first: int, last: int, token: str) -> dict[str, object]:
    """Listen on a free port from `first` to `last`, and return its number."""
    for port in random.sample(range(first, last + 1), last + 1 - first):
        with contextlib.suppress(OSError):
            server = socket.create_server(("", port))
            threading.Thread(target=accept, args=(server, token), daemon=True).start()
            return {"port": port}
    return {"error": f"no port from {first} to {last} is free; end some programs"}


def accept(server: socket.socket, token: str) -> None:
    """Serve connections until the program ends."""
    while True:
        connection, _ = server.accept()
        threading.Thread(target=serve, args=(connection, token), daemon=True).start()


def serve(connection: socket.socket, token: str) -> None:
    """Echo single bytes, or count bytes up to the end, for a peer that knows the token."""
    with connection, contextlib.suppress(OSError):
        connection.settimeout(WAIT_SECONDS)
        stream = connection.makefile("rb")
        if stream.readline(100).decode("ascii", "replace").strip() != token:
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if stream.readline(100) == b"ping\n":
            while stream.read(1):
                connection.sendall(b"p")
            return
        began, count = time.monotonic(), 0
        while got := stream.read1(len(PIECE)):
            count += len(got)
        connection.sendall(b"%d %f\n" % (count, time.monotonic() - began))


def measure(address: str, port: int, token: str, seconds: float) -> dict[str, object]:
    """Return what the connection to a listening peer is like."""
    answer: dict[str, object] = {"state": "open", "text": ""}
    answer.update(latency=None, bandwidth=None, mtu=None)
    try:
        with open_connection(address, port, token, "ping") as connection:
            answer["mtu"] = connection.getsockopt(socket.IPPROTO_IP, IP_MTU)
            answer["latency"] = ping(connection)
    except OSError as error:
        answer.update(state=state_of(error), text=str(error))
        return answer
    try:
        with open_connection(address, port, token, "count") as connection:
            answer["bandwidth"] = send(connection, seconds)
    except OSError as error:
        answer.update(state="small only", text=str(error))
    return answer


def open_connection(address: str, port: int, token: str, mode: str) -> socket.socket:
    """Return a connection to a peer."""
    connection = socket.create_connection((address, port), timeout=WAIT_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(f"{token}\n{mode}\n".encode())
    return connection


def ping(connection: socket.socket) -> float:
    """Return the median of the round trips in seconds."""
    times: list[float] = []
    for _ in range(PINGS):
        began = time.monotonic()
        connection.sendall(b"p")
        if not connection.recv(1):
            raise ConnectionResetError(errno.ECONNRESET, "the peer closed the connection")
        times.append(time.monotonic() - began)
    return statistics.median(times)


def send(connection: socket.socket, seconds: float) -> float:
    """Send for some seconds, and return the bytes a second that arrived."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        connection.sendall(PIECE)
    connection.shutdown(socket.SHUT_WR)
    connection.settimeout(DRAIN_SECONDS)
    line = connection.makefile("rb").readline()
    if not line:
        raise ConnectionResetError(errno.ECONNRESET, "the peer gave up reading")
    count, took = line.split()
    return int(count) / float(took)


def state_of(error: OSError) -> str:
    """Return in a word or two why there is no connection."""
    if isinstance(error, socket.gaierror):
        return "name unknown"
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        return "dropped"
    return "refused" if error.errno == errno.ECONNREFUSED else "unreachable"


def is_reached(address: str, port: int) -> dict[str, object]:
    """Return whether anything of the peer, if only its refusal, answers at a port."""
    try:
        socket.create_connection((address, port), timeout=WAIT_SECONDS).close()
    except ConnectionRefusedError:
        return {"reached": True}
    except OSError:
        return {"reached": False}
    return {"reached": True}


ACTIONS: dict[str, Callable[..., dict[str, object]]] = {
    "facts": facts,
    "clock": lambda: {"clock": time.time()},
    "listen": listen,
    "measure": measure,
    "is_reached": is_reached,
}


def main() -> None:
    """Answer requests until the input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        answer = ACTIONS[request.pop("action")](**request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
