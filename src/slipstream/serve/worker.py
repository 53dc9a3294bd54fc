"""The program of a worker process: python -m slipstream.serve.worker FD THREADS CORES DEVICE.

The program executes the calls that the server sends over the socket FD, and ends with the server.
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

# Number of models that are loaded or released at the same time. Chosen by hand, not measured.
_LOADERS = 2


class WorkerServer:
    """The part of a worker process that receives the server's calls and executes them.

    Args:
        link: Socket to the server.
        runners: Models of this process.
    """

    def __init__(self, link: socket.socket, runners: ModelRunners) -> None:
        self._link, self._runners = link, runners
        self._sending = threading.Lock()
        self._loaders = ThreadPoolExecutor(_LOADERS)

    def serve(self) -> None:
        """Execute the calls of the server until it closes the connection."""
        with self._link.makefile("rb") as stream:
            while sizes := stream.read(SIZES.size):
                length, num_bytes = SIZES.unpack(sizes)
                head = stream.read(length)
                payload = bytearray(num_bytes)
                if stream.readinto(payload) < num_bytes:
                    return
                self._begin(*parts_of(head, payload))

    def _begin(self, call: dict[str, Any], tensors: dict[str, Array]) -> None:
        number, key = call["number"], call["key"]
        if call["action"] == "run":
            runner = self._runners.get(key)
            runner.pool.submit(self._run, number, runner, tensors, call["is_alone"])
        elif call["action"] == "load":
            self._loaders.submit(self._load, number, key, Path(call["path"]))
        else:
            self._loaders.submit(self._unload, number, key)

    def _run(
        self, number: int, runner: ModelRunner, tensors: dict[str, Array], is_alone: bool
    ) -> None:
        try:
            outputs, seconds = runner.run(tensors, is_alone)
        except Exception as error:  # noqa: BLE001  # an engine's error is sent to the server
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
        except Exception as error:  # noqa: BLE001  # an engine's error is sent to the server
            self._send({"number": number, "error": repr(error), "kind": "unsupported"}, {})
            return
        self._send(
            {
                "number": number,
                "runs": ready.runs,
                "seconds": ready.seconds,
                "device": ready.devices[0],
            },
            {},
        )

    def _unload(self, number: int, key: str) -> None:
        self._runners.unload(key)
        self._send({"number": number}, {})

    def _send(self, content: Mapping[str, Any], tensors: Mapping[str, Array]) -> None:
        with self._sending:
            for piece in pieces_of(content, tensors):
                self._link.sendall(piece)


def main(fd: int, threads: int, cores: int, device: str) -> None:
    """Execute the calls that arrive on a socket, until the server closes the connection.

    Args:
        fd: File descriptor of the socket.
        threads: Number of threads of a run if no other request for the model is open; 0 keeps the
            number that each model was compiled for.
        cores: Number of cores that concurrent runs share.
    """
    # Ctrl-C reaches this process too, but only the server acts on it, and lets its replicas finish.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=fd) as link:
        try:
            WorkerServer(link, ModelRunners(threads or None, cores, device)).serve()
        except (BrokenPipeError, ConnectionResetError):
            return


if __name__ == "__main__":
    fd, threads, cores, device = sys.argv[1:]
    main(int(fd), int(threads), int(cores), device)
