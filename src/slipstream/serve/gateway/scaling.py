"""How many replicas there should be, and why: arithmetic on what the gateway has seen.

The number of open requests for each replica decides, as in Ray Serve and Knative, and the latency
if there is a target for it. More replicas are wanted at once. Fewer are wanted when they would have
been enough for the whole cool-down time, so a short pause in the load ends no replica.
"""

from __future__ import annotations

import collections
import math
from dataclasses import dataclass

from slipstream.errors import UsageError

# The number of open requests is averaged over this time, so that one burst of requests that arrive
# together starts nothing. Chosen by hand: shorter than a replica takes to start.
_MEAN_SECONDS = 2.0
# After a change of the replicas, the latency of older requests says nothing about the new number.
LATENCY_SECONDS = 10.0
# With a latency between this share of the target and the target, the number of replicas stays.
_COMFORT = 0.7
_MOST_GROWTH = 2.0  # factor by which latency alone may raise the number at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRules:
    """The limits and targets of the number of replicas.

    Args:
        min: Smallest number of replicas.
        max: Largest number of replicas.
        target_open: Open requests that each replica should have (default 4).
        target_latency: Time in seconds within which 99 % of the requests should be answered; None
            (the default) if only the number of open requests counts.
        idle_seconds: Time in seconds without a request after which there are no replicas, if `min`
            is 0 (default 300).
        down_seconds: Time in seconds for which fewer replicas must have been enough before one ends
            (default 60).
    """

    min: int
    max: int
    target_open: float = 4.0
    target_latency: float | None = None
    idle_seconds: float = 300.0
    down_seconds: float = 60.0

    def __post_init__(self) -> None:
        """Check the values."""
        if not 0 <= self.min <= self.max or self.max < 1:
            raise UsageError(
                f"replicas are {self.min}:{self.max}; allowed: MIN:MAX, with 0 <= MIN <= MAX"
                " and MAX >= 1"
            )
        positive = (self.target_open, self.target_latency or 1.0, self.idle_seconds)
        if min(positive) <= 0 or self.down_seconds < 0:
            raise UsageError(
                f"target_open is {self.target_open}, target_latency {self.target_latency},"
                f" idle_seconds {self.idle_seconds}, down_seconds {self.down_seconds}; allowed:"
                " numbers above 0"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSample:
    """The load at one time.

    Args:
        time: Time in seconds, on any clock that only moves forward.
        open: Number of requests that have arrived and are not answered.
        last_request: Time of the newest request.
        ready: Number of replicas that answer requests.
        latency: Time in seconds within which 99 % of the latest requests were answered; None if
            there were none.
    """

    time: float
    open: int
    last_request: float
    ready: int
    latency: float | None = None


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """A new number of replicas.

    Args:
        before: Number of replicas that were wanted before.
        target: Number of replicas that are wanted now.
        reason: Reason of the change.
    """

    before: int
    target: int
    reason: str


class Autoscaler:
    """The number of replicas that are wanted.

    Args:
        rules: Limits and targets.
        target: Number of replicas at the beginning.
    """

    def __init__(self, rules: ScalingRules, target: int) -> None:
        self.rules, self.target = rules, target
        self._samples: collections.deque[tuple[float, int]] = collections.deque()
        self._wishes: collections.deque[tuple[float, int]] = collections.deque()
        self._ready = (0, -math.inf)  # number of ready replicas, and when it changed last

    def decide(self, sample: LoadSample) -> ScalingDecision | None:
        """Return a new number of replicas, or None if the number stays.

        Args:
            sample: Load now.
        """
        if sample.ready != self._ready[0]:
            self._ready = (sample.ready, sample.time)
        _add(self._samples, (sample.time, sample.open), _MEAN_SECONDS)
        mean_open = sum(count for _, count in self._samples) / len(self._samples)
        wish, reason = max(
            self._by_latency(sample, mean_open), self._by_queue(mean_open), key=lambda each: each[0]
        )
        floor = self._floor(sample)
        wish = min(max(wish, floor), self.rules.max)
        _add(self._wishes, (sample.time, wish), self.rules.down_seconds)
        if wish > self.target:
            return self._change(wish, reason if wish > floor else "a request came")
        peak = max(count for _, count in self._wishes)
        if floor == 0 and not sample.open and self.target:
            seconds = sample.time - sample.last_request
            self._wishes.clear()
            return self._change(0, f"there was no request for {seconds:.0f} s")
        if peak < self.target:
            return self._change(peak, f"{peak} were enough for {self.rules.down_seconds:g} s")
        return None

    def _by_queue(self, mean_open: float) -> tuple[int, str]:
        reason = f"{mean_open:.1f} requests are open, {self.rules.target_open:g} a replica allowed"
        return math.ceil(mean_open / self.rules.target_open), reason

    def _by_latency(self, sample: LoadSample, mean_open: float) -> tuple[int, str]:
        """Return the number of replicas by latency; 0 if the latency asks for nothing."""
        goal, latency = self.rules.target_latency, sample.latency
        if goal is None or latency is None or latency <= _COMFORT * goal:
            return 0, ""
        # Without a request that waits for another one, more replicas would not be faster.
        is_queueing = mean_open > sample.ready > 0
        has_settled = sample.time - self._ready[1] >= LATENCY_SECONDS
        if latency <= goal or not is_queueing or not has_settled or sample.ready < self.target:
            return self.target, ""
        factor = min(latency / goal, _MOST_GROWTH)
        words = f"99 % of the requests took {latency * 1e3:.0f} ms, {goal * 1e3:.0f} ms are allowed"
        return math.ceil(sample.ready * factor), words

    def _floor(self, sample: LoadSample) -> int:
        if self.rules.min:
            return self.rules.min
        idle = sample.time - sample.last_request
        return int(sample.open > 0 or idle < self.rules.idle_seconds)

    def _change(self, target: int, reason: str) -> ScalingDecision:
        before, self.target = self.target, target
        return ScalingDecision(before, target, reason)


def _add(
    history: collections.deque[tuple[float, int]], item: tuple[float, int], seconds: float
) -> None:
    """Append an item, and drop those that are older than some seconds."""
    history.append(item)
    while history[0][0] < item[0] - seconds:
        history.popleft()
