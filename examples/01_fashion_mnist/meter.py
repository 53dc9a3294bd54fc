"""How much is communicated, and how much of that is hidden behind computing."""

import time
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Counters:
    """The engine's running totals that the demo shows."""

    wire_bytes: int
    shm_bytes: int
    busy_seconds: float
    last_submit_time: float


def read_counters(backend: str) -> Counters | None:
    """Return the engine's totals so far, or None where the backend keeps none."""
    return None


class CommMeter:
    """Measures how much of the gradients' communication is hidden behind backward().

    Used as a context around backward(). The engine is busy while at least one operation is in
    flight. From the submission of the last bucket to the end of backward() nothing is computed:
    that time is exposed, the rest of the busy time was hidden.
    """

    def __init__(self, backend: str) -> None:
        self.counters = read_counters(backend)
        self._backend = backend
        self._busy_before = 0.0
        self._busy_seconds = 0.0
        self._exposed_seconds = 0.0

    def __enter__(self) -> None:
        counters = read_counters(self._backend)
        self._busy_before = counters.busy_seconds if counters else 0.0

    def __exit__(self, *_: object) -> None:
        now = time.monotonic()
        self.counters = counters = read_counters(self._backend)
        if counters is not None:
            busy = counters.busy_seconds - self._busy_before
            self._busy_seconds += busy
            self._exposed_seconds += min(busy, now - counters.last_submit_time)

    @property
    def hidden_share(self) -> float | None:
        """Share of the communication that cost no time, 0 to 1; None where it is not known."""
        if self._busy_seconds == 0.0:
            return None
        return 1.0 - self._exposed_seconds / self._busy_seconds
