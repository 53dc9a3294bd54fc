"""A replica as the gateway sees it: its state, its load and how it is reached."""

# grpcio has few types.
# pyright: reportUnknownMemberType=false, reportMissingTypeStubs=false

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass, field
from typing import Any

import grpc

from slipstream.serve.gateway.upstream import ConnectionPool, ReplicaAddress

# Name in the certificate of replicas, which does not depend on their hosts.
CERTIFICATE_NAME = "slipstream-replica"


class ReplicaState(enum.Enum):
    """A stage in the life of a replica."""

    STARTING = "starting"
    READY = "ready"
    SUSPECT = "suspect"  # a connection was lost, or it is silent: it gets no new requests
    DRAINING = "draining"  # it gets no new requests, and ends when it has answered the open ones
    ENDED = "ended"


@dataclass(eq=False, slots=True)
class ReplicaServer:
    """A replica: a server of its own, on this or another host.

    Args:
        name: Name of the replica.
        generation: Number of the generation of model files that it serves.
        since: Time of `time.monotonic` at which its start began.
        state: Stage of its life (default STARTING).
        host: Name of its host; "" until it has started.
        open: Number of requests that it has and has not answered.
        answered: Number of requests that it has answered.
        lost: Number of requests that were lost with a connection to it.
    """

    name: str
    generation: int
    since: float
    state: ReplicaState = ReplicaState.STARTING
    host: str = ""
    open: int = 0
    answered: int = 0
    lost: int = 0
    start_seconds: float = 0.0
    _pool: ConnectionPool | None = None
    _channel: Any = None
    suspected: asyncio.Event = field(default_factory=asyncio.Event)
    _closing: asyncio.Task[None] | None = None

    @property
    def pool(self) -> ConnectionPool:
        """Connections to the replica, which has started."""
        assert self._pool is not None, f"{self.name} has not started"
        return self._pool

    @property
    def channel(self) -> Any:
        """Channel of gRPC to the replica."""
        if self._channel is None:
            self._channel = _open_channel(self.pool.address)
        return self._channel

    def connect(self, pool: ConnectionPool) -> None:
        """Take note of the address at which the replica can be reached."""
        self._pool, self.state = pool, ReplicaState.READY

    def suspect(self) -> None:
        """Give the replica no new requests until it has answered a probe."""
        if self.state is ReplicaState.READY:
            self.state = ReplicaState.SUSPECT
        self.suspected.set()

    def disconnect(self) -> None:
        """End all connections; requests under way are sent to other replicas."""
        self.state = ReplicaState.ENDED
        if self._pool is not None:
            self._pool.close()
        if self._channel is not None:
            self._closing = asyncio.create_task(self._channel.close(None))


def _open_channel(address: ReplicaAddress) -> Any:
    target = f"{address.host}:{address.grpc_port}"
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),  # a port may belong to another replica later
    ]
    if not address.certificate:
        return grpc.aio.insecure_channel(target, options)
    options.append(("grpc.ssl_target_name_override", CERTIFICATE_NAME))
    credentials = grpc.ssl_channel_credentials(address.certificate.encode())
    return grpc.aio.secure_channel(target, credentials, options)
