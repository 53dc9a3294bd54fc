"""Creation of an engine, and its connection to the engines of the other ranks."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from slipstream import _core
from slipstream.comm import flight
from slipstream.comm.active import OpenEngine
from slipstream.comm.config import engine_config
from slipstream.errors import ConfigError
from slipstream.settings import Launch, Settings

_LEAST_CONNECT_SECONDS = 1.0
_DRAWN_KEY_BYTES = 32

Exchange = Callable[[bytes], list[bytes]]
"""Passes on the address of this rank's engine, and returns the addresses of all, by rank."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seat:
    """Place of a process among the ranks of an engine.

    Args:
        rank: Rank of the process.
        size: Number of ranks.
        epoch: Number of the engine; ranks with different epochs do not connect.
        key: Secret that the ranks of this engine share.
    """

    rank: int
    size: int
    epoch: int
    key: bytes = field(repr=False)


def open_engine(
    seat: Seat, settings: Settings, towards: str | None, exchange: Exchange
) -> OpenEngine:
    """Create an engine and connect it with all ranks; block until all have come.

    Args:
        seat: Place of this process.
        settings: Settings of this process.
        towards: Name of a host of the job, which decides the network interface, or None for a job
            of one process.
        exchange: Function that exchanges the addresses of the engines.

    Raises:
        PeerTimeoutError: some ranks did not come within SLIPSTREAM_CONNECT_TIMEOUT.
        AuthError: some ranks have another key.
        ConfigError: a setting differs between ranks, or is wrong.
    """
    flight.arm(settings.flight_dir, seat.rank, seat.size)
    deadline = time.monotonic() + settings.connect_timeout_seconds
    runtime = _core.Runtime(
        rank=seat.rank,
        world_size=seat.size,
        epoch=seat.epoch,
        key=seat.key,
        config=engine_config(settings, towards),
    )
    try:
        addresses = exchange(runtime.address())
        runtime.connect(addresses, max(_LEAST_CONNECT_SECONDS, deadline - time.monotonic()))
        return OpenEngine(runtime, seat.rank, settings.timeline)
    except BaseException:
        runtime.close()
        raise


def job_key(settings: Settings, launch: Launch) -> bytes:
    """Return the key of the job; a job of one process that has none gets a random one.

    Raises:
        ConfigError: the job has several ranks and no key.
    """
    key = settings.load_job_key()
    if key is not None:
        return key
    if launch.world_size == 1:
        return secrets.token_bytes(_DRAWN_KEY_BYTES)
    raise ConfigError(
        f"rank {launch.rank} of {launch.world_size} has no job key, so it cannot distinguish its"
        " peers from strangers; start the ranks with `slipstream run`, which makes a key, or set"
        " SLIPSTREAM_JOB_KEY or SLIPSTREAM_KEY_FILE to the same secret on every rank"
    )
