"""A replica's process: python -m slipstream.serve.worker FD THREADS CORES.

It does what the server says over the socket FD, and ends with it.
"""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from slipstream.errors import SlipstreamError, UnsupportedError
from slipstream.infer.graph.graph import Array
from slipstream.serve.frames import SIZES, parts_of, pieces_of
from slipstream.serve.replicas import ModelRunner, ModelRunners

# Models that are loaded or let go of at a time.
_LOADERS = 2


class WorkerServer:
    """Runs models for a server.

    Args:
        link: to the server.
        runners: its models.
    """

    def __init__(self, link: socket.socket, runners: ModelRunners) -> None:
        self._link, self._runners = link, runners
        self._sending = threading.Lock()
        self._loaders = ThreadPoolExecutor(_LOADERS)

    def serve(self) -> None:
        """Does what the server says, until it closes the link."""
        with self._link.makefile("rb") as stream:
            while sizes := stream.read(SIZES.size):
                length, num_bytes = SIZES.unpack(sizes)
                head = stream.read(length)
                payload = bytearray(num_bytes)
                if stream.readinto(payload) < num_bytes:
                    return
                self._begin(*parts_of(head, payload))

    def _begin(self, said: dict[str, Any], tensors: dict[str, Array]) -> None:
        number, key = said["number"], said["key"]
        if said["do"] == "run":
            runner = self._runners.get(key)
            runner.pool.submit(self._run, number, runner, tensors, said["is_alone"])
        elif said["do"] == "load":
            self._loaders.submit(self._load, number, key, Path(said["path"]))
        else:
            self._loaders.submit(self._unload, number, key)

    def _run(
        self, number: int, runner: ModelRunner, tensors: dict[str, Array], is_alone: bool
    ) -> None:
        try:
            outputs, seconds = runner.run(tensors, is_alone)
        except Exception as error:  # noqa: BLE001  # of engines: the server is told
            self._send({"number": number, "error": repr(error)}, {})
        else:
            self._send({"number": number, "seconds": seconds}, outputs)

    def _load(self, number: int, key: str, path: Path) -> None:
        try:
            ready = self._runners.load(key, path)
        except SlipstreamError as error:
            kind = "unsupported" if isinstance(error, UnsupportedError) else "usage"
            self._send({"number": number, "error": str(error), "kind": kind}, {})
            return
        except Exception as error:  # noqa: BLE001  # of engines: the server is told
            self._send({"number": number, "error": repr(error), "kind": "unsupported"}, {})
            return
        self._send({"number": number, "runs": ready.runs, "seconds": ready.seconds}, {})

    def _unload(self, number: int, key: str) -> None:
        self._runners.unload(key)
        self._send({"number": number}, {})

    def _send(self, content: Mapping[str, Any], tensors: Mapping[str, Array]) -> None:
        with self._sending:
            for piece in pieces_of(content, tensors):
                self._link.sendall(piece)


def main(fd: int, threads: int, cores: int) -> None:
    """Serves on a socket; 0 threads: those that each model was compiled for."""
    # The server is told to end by the same key, and lets its replicas finish.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=fd) as link:
        try:
            WorkerServer(link, ModelRunners(threads or None, cores)).serve()
        except (BrokenPipeError, ConnectionResetError):
            return


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
