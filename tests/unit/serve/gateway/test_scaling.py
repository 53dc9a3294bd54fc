"""The number of replicas that is wanted, by load and time."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette")

from slipstream.errors import UsageError
from slipstream.serve.gateway.scaling import Autoscaler, LoadSample, ScalingRules

STEP = 0.25


class Simulation:
    """An autoscaler whose replicas are ready some seconds after they are wanted."""

    def __init__(self, rules: ScalingRules, target: int, start_seconds: float = 1.0) -> None:
        self.scaler = Autoscaler(rules, target)
        self.time, self.last_request = 100.0, 100.0
        self.ready, self.start_seconds = target, start_seconds
        self.wanted_since = self.time
        self.reasons: list[str] = []
        self.targets: list[int] = [target]

    def run(self, seconds: float, open_requests: int, latency: float | None = None) -> int:
        """Let time pass with so many open requests; return the number that is wanted."""
        end = self.time + seconds
        while self.time < end:
            self.time += STEP
            if open_requests:
                self.last_request = self.time
            sample = LoadSample(
                time=self.time, open=open_requests, last_request=self.last_request,
                ready=self.ready, latency=latency,
            )  # fmt: skip
            decision = self.scaler.decide(sample)
            if decision is not None:
                assert decision.before == self.targets[-1]
                self.targets.append(decision.target)
                self.reasons.append(decision.reason)
                self.wanted_since = self.time
            is_ready = self.time - self.wanted_since >= self.start_seconds
            if self.scaler.target < self.ready or is_ready:
                self.ready = self.scaler.target
        return self.scaler.target


def test_the_number_follows_the_open_requests() -> None:
    simulation = Simulation(ScalingRules(min=1, max=5, target_open=4, down_seconds=10), 1)
    assert simulation.run(20, open_requests=4) == 1
    assert simulation.run(5, open_requests=11) == 3
    assert simulation.run(5, open_requests=1000) == 5
    assert simulation.run(9, open_requests=1) == 5
    assert simulation.run(5, open_requests=1) == 1
    assert "requests are open, 4 a replica allowed" in simulation.reasons[0]
    assert simulation.reasons[-1] == "1 were enough for 10 s"


def test_one_burst_that_is_over_at_once_starts_little() -> None:
    simulation = Simulation(ScalingRules(min=1, max=50, target_open=4), 1)
    simulation.run(5, open_requests=0)
    assert simulation.run(STEP, open_requests=36) <= 2
    assert simulation.run(5, open_requests=0) <= 2


def test_a_pause_shorter_than_the_cool_down_ends_nothing() -> None:
    simulation = Simulation(ScalingRules(min=1, max=4, target_open=2, down_seconds=30), 1)
    for _ in range(5):
        simulation.run(10, open_requests=8)
        simulation.run(20, open_requests=0)
    assert simulation.targets == sorted(simulation.targets)
    assert simulation.scaler.target == 4


def test_a_load_that_needs_a_little_less_ends_one_at_a_time_at_most_to_its_peak() -> None:
    simulation = Simulation(ScalingRules(min=0, max=8, target_open=2, down_seconds=10), 1)
    simulation.run(10, open_requests=16)
    simulation.run(8, open_requests=10)
    assert simulation.run(8, open_requests=4) == 5
    assert simulation.run(8, open_requests=4) == 2


@pytest.mark.parametrize("least", [1, 2])
def test_without_requests_the_smallest_number_stays(least: int) -> None:
    simulation = Simulation(ScalingRules(min=least, max=4, idle_seconds=5, down_seconds=1), 4)
    assert simulation.run(100, open_requests=0) == least


def test_after_the_idle_time_there_are_none_until_a_request_comes() -> None:
    simulation = Simulation(ScalingRules(min=0, max=4, idle_seconds=20, down_seconds=5), 3)
    assert simulation.run(19, open_requests=0) == 1
    assert simulation.run(2, open_requests=0) == 0
    assert simulation.reasons[-1] == "there was no request for 20 s"
    assert simulation.run(100, open_requests=0) == 0
    assert simulation.run(STEP, open_requests=1) == 1
    assert simulation.run(10, open_requests=1) == 1


def test_a_latency_above_the_target_adds_replicas_once_the_last_ones_have_had_time() -> None:
    rules = ScalingRules(min=1, max=8, target_open=100, target_latency=0.1)
    simulation = Simulation(rules, 2)
    assert simulation.run(9, open_requests=10, latency=0.15) == 2
    assert simulation.run(2, open_requests=10, latency=0.15) == 3
    assert "took 150 ms, 100 ms are allowed" in simulation.reasons[-1]
    assert simulation.run(9, open_requests=10, latency=0.15) == 3
    assert simulation.run(5, open_requests=10, latency=1.0) == 6
    assert simulation.run(30, open_requests=10, latency=0.09) == 6


def test_latency_without_requests_that_wait_for_others_adds_nothing() -> None:
    rules = ScalingRules(min=1, max=8, target_open=4, target_latency=0.1)
    assert Simulation(rules, 2).run(60, open_requests=2, latency=5.0) == 2


def test_replicas_are_kept_while_the_latency_is_near_its_target() -> None:
    rules = ScalingRules(min=1, max=8, target_open=4, target_latency=0.1, down_seconds=5)
    simulation = Simulation(rules, 4)
    assert simulation.run(60, open_requests=3, latency=0.08) == 4
    assert simulation.run(60, open_requests=3, latency=0.05) == 1


@pytest.mark.parametrize(
    "values", [{"min": 2, "max": 1}, {"min": -1, "max": 1}, {"min": 0, "max": 0},
               {"min": 1, "max": 1, "target_open": 0.0}, {"min": 1, "max": 1, "idle_seconds": 0.0}]
)  # fmt: skip
def test_rules_are_checked(values: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="allowed: "):
        ScalingRules(**values)  # type: ignore[arg-type]
