"""Counters of the engine, for people and for monitoring."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.comm.active import open_engines


@dataclass(frozen=True, kw_only=True, slots=True)
class Stats:
    """Counters of all open engines of this process together.

    An engine counts from its creation on. Numbers of bytes include the engine's message headers.
    `last_submit_time` and `last_complete_time` are values of `time.monotonic()`, in seconds.
    """

    operations: int
    failed_operations: int
    network_bytes_sent: int
    network_bytes_received: int
    shm_bytes_sent: int
    shm_bytes_received: int
    segments_sent_again: int
    streams_lost: int
    streams_reopened: int
    """Number of lost connections that were replaced by new ones."""
    streams: int
    """Number of connections that carry bulk data to another rank over the network."""
    stalls_reported: int
    busy_seconds: float
    """Seconds with at least one operation in flight."""
    blocked_seconds: float
    """Seconds that callers spent in wait(), summed over threads."""
    last_submit_time: float
    last_complete_time: float


def stats() -> Stats:
    """Return the counters of the open engines; without an engine, all counters are zero.

    The call does not wait for other ranks.
    """
    counters = [engine.runtime.stats() for engine in open_engines()]
    return Stats(
        operations=sum(engine.operations for engine in counters),
        failed_operations=sum(engine.failed_operations for engine in counters),
        network_bytes_sent=sum(engine.network_bytes_sent for engine in counters),
        network_bytes_received=sum(engine.network_bytes_received for engine in counters),
        shm_bytes_sent=sum(engine.shm_bytes_sent for engine in counters),
        shm_bytes_received=sum(engine.shm_bytes_received for engine in counters),
        segments_sent_again=sum(engine.segments_sent_again for engine in counters),
        streams_lost=sum(engine.streams_lost for engine in counters),
        streams_reopened=sum(engine.streams_reopened for engine in counters),
        streams=max((engine.streams for engine in counters), default=0),
        stalls_reported=sum(engine.stalls_reported for engine in counters),
        busy_seconds=sum(engine.busy_nanoseconds for engine in counters) / 1e9,
        blocked_seconds=sum(engine.blocked_nanoseconds for engine in counters) / 1e9,
        last_submit_time=max((engine.last_submit_nanoseconds for engine in counters), default=0)
        / 1e9,
        last_complete_time=max((engine.last_complete_nanoseconds for engine in counters), default=0)
        / 1e9,
    )
