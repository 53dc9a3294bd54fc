"""Measurements of the engine: bytes, the share of its time hidden by compute, and a timeline.

Other backends report no such numbers; training works with them as well.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist

from slipstream import comm


class CommMeter:
    """The share of the gradients' communication that backward() hides.

    Use it as a context around backward(). The engine is busy while at least one operation is in
    flight. After the submission of the last bucket, backward() computes nothing: this time is
    exposed. The other busy time was hidden.
    """

    def __init__(self) -> None:
        self.has_stats = dist.get_backend() == "slipstream"
        self._busy_before = 0.0
        self._busy_seconds = 0.0
        self._exposed_seconds = 0.0

    def __enter__(self) -> None:
        if self.has_stats:
            self._busy_before = comm.stats().busy_seconds

    def __exit__(self, *_: object) -> None:
        now = time.monotonic()
        if self.has_stats:
            stats = comm.stats()
            busy = stats.busy_seconds - self._busy_before
            self._busy_seconds += busy
            self._exposed_seconds += min(busy, now - stats.last_submit_time)

    @property
    def hidden_share(self) -> float | None:
        """Share of the communication that took no extra time, 0 to 1; None if it is unknown."""
        if self._busy_seconds == 0.0:
            return None
        return 1.0 - self._exposed_seconds / self._busy_seconds

    def sent_bytes(self) -> tuple[int, int] | None:
        """Return the bytes sent over the network and shared memory; None if they are unknown."""
        if not self.has_stats:
            return None
        stats = comm.stats()
        return stats.network_bytes_sent, stats.shm_bytes_sent


@contextmanager
def recorded_timeline(path: Path) -> Iterator[None]:
    """Record every operation of all workers in one Chrome trace; all workers must call it."""
    if dist.get_backend() != "slipstream":
        yield
        return
    rank, world_size = dist.get_rank(), dist.get_world_size()
    own_path = path.with_name(f"timeline-{rank}.json")
    comm.timeline.start(own_path)
    yield
    comm.timeline.stop()
    traces: list[Any] | None = [None] * world_size if rank == 0 else None
    dist.gather_object(json.loads(own_path.read_text())["traceEvents"], traces)
    own_path.unlink()
    if traces is not None:
        path.write_text(json.dumps({"traceEvents": [event for trace in traces for event in trace]}))
