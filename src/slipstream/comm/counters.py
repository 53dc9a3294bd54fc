"""Counters of the engine, for people and for monitoring."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.comm.active import open_engines


@dataclass(frozen=True, kw_only=True, slots=True)
class Stats:
    """Counters since the engine was made, of all engines of this process together.

    Bytes include the engine's headers. Times of `time.monotonic()` and seconds.
    """

    operations: int
    failed_operations: int
    network_bytes_sent: int
    network_bytes_received: int
    shm_bytes_sent: int
    shm_bytes_received: int
    segments_sent_again: int
    streams_lost: int
    streams: int
    """That carry bulk data to a peer over the network."""
    stalls_reported: int
    busy_seconds: float
    """With at least one operation in flight."""
    blocked_seconds: float
    """That callers spent in wait(), summed over threads."""
    last_submit_time: float
    last_complete_time: float


def stats() -> Stats:
    """Return the counters; zeros where no engine is open. Does not block on peers."""
    counters = [engine.runtime.stats() for engine in open_engines()]
    return Stats(
        operations=sum(each.operations for each in counters),
        failed_operations=sum(each.failed_operations for each in counters),
        network_bytes_sent=sum(each.network_bytes_sent for each in counters),
        network_bytes_received=sum(each.network_bytes_received for each in counters),
        shm_bytes_sent=sum(each.shm_bytes_sent for each in counters),
        shm_bytes_received=sum(each.shm_bytes_received for each in counters),
        segments_sent_again=sum(each.segments_sent_again for each in counters),
        streams_lost=sum(each.streams_lost for each in counters),
        streams=max((each.streams for each in counters), default=0),
        stalls_reported=sum(each.stalls_reported for each in counters),
        busy_seconds=sum(each.busy_nanoseconds for each in counters) / 1e9,
        blocked_seconds=sum(each.blocked_nanoseconds for each in counters) / 1e9,
        last_submit_time=max((each.last_submit_nanoseconds for each in counters), default=0) / 1e9,
        last_complete_time=max((each.last_complete_nanoseconds for each in counters), default=0)
        / 1e9,
    )
