"""What the engine did: bytes, the share of its time hidden behind computing, and a timeline.

Other backends keep no such numbers; the training runs with them all the same.
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
    """Measures how much of the gradients' communication is hidden behind backward().

    Used as a context around backward(). The engine is busy while at least one operation is in
    flight. From the submission of the last bucket to the end of backward() nothing is computed:
    that time is exposed, the rest of the busy time was hidden.
    """

    def __init__(self) -> None:
        self.known = dist.get_backend() == "slipstream"
        self._busy_before = 0.0
        self._busy_seconds = 0.0
        self._exposed_seconds = 0.0

    def __enter__(self) -> None:
        if self.known:
            self._busy_before = comm.stats().busy_seconds

    def __exit__(self, *_: object) -> None:
        now = time.monotonic()
        if self.known:
            stats = comm.stats()
            busy = stats.busy_seconds - self._busy_before
            self._busy_seconds += busy
            self._exposed_seconds += min(busy, now - stats.last_submit_time)

    @property
    def hidden_share(self) -> float | None:
        """Share of the communication that cost no time, 0 to 1; None where it is not known."""
        if self._busy_seconds == 0.0:
            return None
        return 1.0 - self._exposed_seconds / self._busy_seconds

    def sent_bytes(self) -> tuple[int, int] | None:
        """Bytes that this worker has sent by network and by shared memory; None if not known."""
        if not self.known:
            return None
        stats = comm.stats()
        return stats.network_bytes_sent, stats.shm_bytes_sent


@contextmanager
def recorded_timeline(path: Path) -> Iterator[None]:
    """Record every operation of all workers into one Chrome trace; all workers call it."""
    if dist.get_backend() != "slipstream":
        yield
        return
    rank, world_size = dist.get_rank(), dist.get_world_size()
    own = path.with_name(f"timeline-{rank}.json")
    comm.timeline.start(own)
    yield
    comm.timeline.stop()
    traces: list[Any] | None = [None] * world_size if rank == 0 else None
    dist.gather_object(json.loads(own.read_text())["traceEvents"], traces)
    own.unlink()
    if traces is not None:
        path.write_text(json.dumps({"traceEvents": [event for trace in traces for event in trace]}))
