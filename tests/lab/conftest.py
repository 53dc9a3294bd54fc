"""Labs for the tests, and transfers in them."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from slipstream.lab import Lab, LabRun

TRANSFER = str(Path(__file__).parent / "ranks" / "transfer.py")
LIMIT_SECONDS = 30.0
WINDOW_SECONDS = 0.3


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one receiver saw of the streams of one sender."""

    source: int
    target: int
    stream_bytes: tuple[int, ...]
    stream_seconds: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Payload bits per second of all streams together."""
        return sum(self.stream_bytes) * 8 / max(self.stream_seconds)

    @property
    def stream_rates(self) -> tuple[float, ...]:
        """Payload bits per second of each stream."""
        pairs = zip(self.stream_bytes, self.stream_seconds, strict=True)
        return tuple(size * 8 / seconds for size, seconds in pairs)


Transfer = Callable[..., list[Report]]
StartTransfer = Callable[..., LabRun]
RateNow = Callable[..., float]
Wait = Callable[[Callable[[], object]], None]


@pytest.fixture(scope="session")
def start_transfer() -> StartTransfer:
    """Start to send; returns the run."""

    def start(lab: Lab, num_bytes: int, *pairs: str, streams: int = 1) -> LabRun:
        environ = {"LAB_ADDRESSES": ",".join(lab.addresses)}
        command = [TRANSFER, str(num_bytes), str(streams), *pairs]
        return lab.start(command, environ=environ, ranks_per_host=1)

    return start


@pytest.fixture(scope="session")
def transfer(start_transfer: StartTransfer) -> Transfer:
    """Send bytes from some hosts to others, all at once; returns what the receivers saw."""

    def run(lab: Lab, num_bytes: int, *pairs: str, streams: int = 1) -> list[Report]:
        result = start_transfer(lab, num_bytes, *pairs, streams=streams).wait(LIMIT_SECONDS)
        assert result.failure is None, result.failure
        reports = [json.loads(line) for lines in result.lines for line in lines]
        return [
            Report(
                source=report["from"],
                target=report["to"],
                stream_bytes=tuple(report["bytes"]),
                stream_seconds=tuple(report["seconds"]),
            )
            for report in reports
        ]

    return run


@pytest.fixture(scope="session")
def rate_now() -> RateNow:
    """Measure how fast a host sends, in bits per second, over the next tenths of a second."""

    def measure(lab: Lab, host: int = 0) -> float:
        before, began = lab.counters(), time.monotonic()
        while time.monotonic() < began + WINDOW_SECONDS:
            lab.counters()
        sent = lab.counters().since(before).hosts[host].sent_bytes
        return sent * 8 / (time.monotonic() - began)

    return measure


@pytest.fixture(scope="session")
def wait_until() -> Wait:
    """Wait for a condition, with a deadline."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "this did not come true"
            time.sleep(0.01)

    return wait
