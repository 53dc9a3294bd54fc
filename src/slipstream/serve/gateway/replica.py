"""The program of one replica, which a gateway starts on this or another host.

    python -m slipstream.serve.gateway.replica [ADDRESS]

Its standard input is the lease: a line of JSON with what to serve, then an empty line now and then,
and the word END for an orderly end. This server ends when the lines stop. If the input ends without
that word, the gateway is gone, and this server also removes the copies of the models. Secrets come
by that way too, so no other process sees them. Its standard output is one line of JSON: the ports,
or why there are none.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from slipstream.errors import SlipstreamError
from slipstream.serve.access import Tls, Tokens
from slipstream.serve.repository import ModelSpec
from slipstream.serve.server import ListenAddresses, ServeOptions, Server

END = b"end"  # last word of a lease that ends in order
_KEY_SECONDS = 1.0  # in which the server, whose task has been created, reads certificate and key
LEASE_SECONDS = 5.0  # time between two lines of the lease
# A gateway that is silent for so long is gone or cut off; chosen by hand, far above a busy host's
# pauses.
LOST_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOrder:
    """What a replica serves.

    Args:
        models: Name, version, path and share of each version of each model.
        token: Token that each request must present.
        certificate: Certificate in PEM format; "" (the default) for no encryption.
        private_key: Private key of the certificate.
        has_grpc: Whether the replica serves gRPC too (default False).
        copies: Folder of the gateway's copies, which goes when the gateway is gone; "" (the
            default) for none.
        options: Further fields of `ServeOptions`.
    """

    models: list[tuple[str, str, str, float | None]]
    token: str = field(repr=False)
    certificate: str = ""
    private_key: str = field(default="", repr=False)
    has_grpc: bool = False
    copies: str = ""
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def as_text(self) -> str:
        """Return the order as a line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> ReplicaOrder:
        """Return the order from a line of JSON."""
        return cls(**json.loads(text))

    def serve_options(self, host: str, folder: Path) -> ServeOptions:
        """Return the options of the server.

        Args:
            host: Address to listen on.
            folder: Private folder for certificate and key.
        """
        options = dict(self.options)
        if devices := options.pop("devices", None):
            options["devices"] = tuple(devices)
        return ServeOptions(
            models=[
                ModelSpec(name, version, Path(path), share)
                for name, version, path, share in self.models
            ],
            host=host,
            port=0,
            grpc_port=0 if self.has_grpc else None,
            watch=None,  # the gateway replaces replicas when a file changes
            notice=0.0,
            tokens=Tokens((self.token.encode(),)),
            tls=self._write_tls(folder) if self.certificate else None,
            **options,
        )

    def _write_tls(self, folder: Path) -> Tls:
        tls = Tls(folder / "certificate.pem", folder / "key.pem")
        for path, text in ((tls.certificate, self.certificate), (tls.key, self.private_key)):
            path.touch(mode=0o600)
            path.write_text(text)
        return tls


async def serve(order: ReplicaOrder, host: str) -> None:
    """Serve until the gateway ends the lease.

    Args:
        order: Order of the gateway.
        host: Address to listen on.
    """
    with ExitStack() as stack:
        folder = ""
        if order.certificate:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="slipstream-replica-"))

        def announce(addresses: ListenAddresses) -> None:
            _announce(addresses)
            # A replica that is killed later leaves no key behind.
            asyncio.get_running_loop().call_later(_KEY_SECONDS, stack.close)

        server = Server(order.serve_options(host, Path(folder)), announce)
        lease = asyncio.create_task(_end_with_lease(server, order.copies))
        try:
            await server.run()
        finally:
            lease.cancel()


async def _end_with_lease(server: Server, copies: str) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    line = b"\n"
    try:
        while line == b"\n":
            line = await asyncio.wait_for(reader.readline(), LOST_SECONDS)
    except asyncio.TimeoutError:
        print("slipstream: the gateway is silent; its replica ends", file=sys.stderr)
    if not line and copies:  # a gateway that is only silent may need them again
        await asyncio.to_thread(shutil.rmtree, copies, ignore_errors=True)
    # A server that still loads its models, or whose run hangs, does not heed `end`.
    timer = threading.Timer(LOST_SECONDS, os._exit, (1,))
    timer.daemon = True
    timer.start()
    server.end(0.0)


def _announce(addresses: ListenAddresses) -> None:
    host, _, port = addresses.rest.rpartition(":")
    grpc_port = int((addresses.grpc or ":0").rpartition(":")[2])
    print(json.dumps({"host": host, "port": int(port), "grpc_port": grpc_port}), flush=True)


def main() -> int:
    """Serve what standard input orders; return the exit code."""
    host = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1"
    # What reads a line of a pipe through a buffer would keep later lines from the event loop.
    line = bytearray()
    while (byte := os.read(0, 1)) not in (b"\n", b""):
        line += byte
    try:
        uvloop.run(serve(ReplicaOrder.from_text(line.decode()), host))
    except (SlipstreamError, OSError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
