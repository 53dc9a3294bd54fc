"""Search for the fastest strategy that fits in the memory of the given hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slipstream.forecast.memory import PeakMemory
from slipstream.forecast.search.candidates import Allowed, refinements, strategies
from slipstream.forecast.search.machines import HostType
from slipstream.forecast.search.plan import Other, limit_of
from slipstream.forecast.search.trials import Trials, memory_bytes
from slipstream.forecast.simulate.step import SimulatedStep
from slipstream.forecast.work.strategy import Exchange, Strategy
from slipstream.units import GIB

# The constants below were varied in 21 scenarios: six models on up to five types of hosts. The
# comments say how other values change the step times of the 21 best strategies.
#
# Number of fastest fitting strategies that are refined, and number of rounds of refinement. With
# one strategy instead of two, all step times are the same; with four, one step is 0.5 % faster.
# With one round, nine steps are up to 10 % slower; with four rounds, no step changes.
# tests/unit/forecast/test_search.py checks that the result is at most 5 % slower than the best
# strategy.
_REFINED = 2
_ROUNDS = 2
# Maximum step time after a change of a strategy, relative to the step time before; a smaller gain
# does not justify a more complicated strategy. With 1.0, 0.98 and 0.95 the mean step is 0.2, 0.4
# and 1.2 % slower.
_GAIN = 0.99
# The same maximum for parameter servers, which are separate processes. With 0.99 and 0.95 no step
# changes.
_SERVER_GAIN = 0.97
# Ratio of step times from which a reason reads "takes N times as long" instead of a percentage.
_MANY = 4
# Minimum share of the step time spent in gradient exchange at which each layer may get its own
# exchange method. With 0 and 0.2 no step changes. Without separate methods, seven steps are slower
# and three scenarios have no plan.
_BOUND = 0.05
# Shares of the device memory that layers with their own exchange method may use, tried in this
# order until a strategy fits; activations and buffers need the remaining memory. With nine shares
# from 0.9 to 0.1 the steps are the same. With 0.2 alone, two scenarios have no plan, but one step
# is 45 % faster.
_ROOM = (0.7, 0.4, 0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class BestStrategy:
    """Fastest strategy on the given hosts.

    Args:
        machine: Type of every host.
        hosts: Number of hosts.
        strategy: Parallelism over the devices of the hosts.
        step: Simulated step of the strategy; its `spans` contain the tasks of every micro-batch,
            unless there are more than 4096 passes.
        peak: Peak memory of the fullest device.
        alone: Samples per second of a single device that trains with the same micro-batch size.
        others: Rejected strategies: the best strategy of each combination of parallelism and
            memory-saving methods. The combination of `strategy` is left out.
    """

    machine: HostType
    hosts: int
    strategy: Strategy
    step: SimulatedStep
    peak: PeakMemory
    alone: float
    others: tuple[Other, ...]


@dataclass(frozen=True, slots=True)
class Infeasible:
    """Reason why no strategy can be used on the given hosts.

    Args:
        why: Human-readable reason with the numbers.
        memory: Whether the reason is too little memory; otherwise the batch cannot be divided
            equally among the devices.
    """

    why: str
    memory: bool


class StrategySearch:
    """Search over strategies on given hosts.

    Args:
        trials: Cached simulations of the model's strategies.
        global_batch: Number of samples per step.
        allowed: Strategies that the user allows.
    """

    def __init__(self, trials: Trials, global_batch: int, allowed: Allowed) -> None:
        self._trials = trials
        self._batch = global_batch
        self._allowed = allowed

    def best(self, machine: HostType, hosts: int) -> BestStrategy | Infeasible:
        """Return the fastest strategy that fits in memory, or the reason why none fits.

        All candidates are simulated, except those whose lower bound of memory is too large. The
        memory of the simulated candidates is replayed, fastest candidate first, until enough
        candidates fit. The candidates that fit are refined.

        Args:
            machine: Type of every host.
            hosts: Number of hosts; all their devices are used.
        """
        trials = self._trials
        limit = memory_bytes(machine)
        candidates = self._candidates(machine, hosts)
        held = {strategy: trials.least(strategy) for strategy in candidates}
        timed = [
            (trials.step(strategy, machine), strategy)
            for strategy in candidates
            if held[strategy] <= limit
        ]
        fits = self._fitting(sorted(timed, key=_cost), machine)
        refined = [self._refined(step, strategy, machine, hosts) for step, strategy in fits]
        refined += self._hybrid(candidates, held, machine, hosts)
        if not refined:
            return self._refused(machine, hosts, held)
        step, strategy = min(refined, key=_cost)
        return BestStrategy(
            machine=machine, hosts=hosts, strategy=strategy, peak=trials.peak(strategy, machine),
            step=trials.step(strategy, machine, every_micro_batch=True),
            alone=trials.alone(strategy, machine),
            others=self._others([*timed, *refined], held, machine, (step, strategy)),
        )  # fmt: skip

    def _fitting(
        self, timed: Sequence[tuple[SimulatedStep, Strategy]], machine: HostType
    ) -> list[tuple[SimulatedStep, Strategy]]:
        """Return the fastest candidates that fit, and the fastest plain data parallelism that fits.

        Plain data parallelism is always included, because with a better gradient exchange it may
        become the fastest strategy.
        """
        fitting: list[tuple[SimulatedStep, Strategy]] = []
        wants_plain = True
        for step, strategy in timed:
            plain = wants_plain and _is_plain(strategy)
            if not plain and len(fitting) >= _REFINED:
                continue
            if self._trials.fits(strategy, machine):
                fitting.append((step, strategy))
                wants_plain = wants_plain and not plain
        return fitting

    def _candidates(self, machine: HostType, hosts: int) -> list[Strategy]:
        per_host = machine.cluster.per_host
        shape = self._trials.shape
        return list(strategies(shape, hosts * per_host, per_host, self._batch, self._allowed))

    def _hybrid(
        self,
        candidates: Sequence[Strategy],
        held: Mapping[Strategy, float],
        machine: HostType,
        hosts: int,
    ) -> list[tuple[SimulatedStep, Strategy]]:
        """Return a data-parallel strategy that chooses a gradient exchange for each layer.

        Data parallelism with the same gradient exchange for all layers may be slow, or may not fit.
        The result is a list of one strategy with its simulated step. The list is empty if no such
        strategy fits, or if the gradient exchange takes only a small share of the step.
        """
        limit = memory_bytes(machine)
        plain = [strategy for strategy in candidates if _is_plain(strategy)]
        if not plain:
            return []
        fitting = [strategy for strategy in plain if held[strategy] <= limit]
        for start in fitting[:1] or plain:
            step = self._trials.step(start, machine)
            if step.exchange < _BOUND * step.seconds:
                continue
            for room in _ROOM:
                layered = self._trials.layered(start, machine, room * limit)
                if layered != start and self._trials.fits(layered, machine):
                    step = self._trials.step(layered, machine)
                    return [self._refined(step, layered, machine, hosts)]
        return []

    def _others(
        self,
        timed: Sequence[tuple[SimulatedStep, Strategy]],
        held: Mapping[Strategy, float],
        machine: HostType,
        taken: tuple[SimulatedStep, Strategy],
    ) -> tuple[Other, ...]:
        """Return the best candidate of each kind (see `_kind`), except the kind of the chosen one.

        The best candidate of a kind is the fastest of the kind. If no candidate of the kind was
        simulated, the best candidate is the one that needs the least memory.
        """
        best: dict[object, Other] = {}
        limit = memory_bytes(machine)
        for step, strategy in sorted(timed, key=lambda pair: pair[0].seconds):
            why = f"{_slower(step, taken[0])}; {limit_of(step)} limits it"
            if not self._trials.known_fit(strategy, machine):
                why = f"does not fit: more than {limit / GIB:.0f} GiB"
            best.setdefault(_kind(strategy), Other(strategy, why))
        for strategy in sorted(held, key=lambda candidate: held[candidate]):
            best.setdefault(_kind(strategy), Other(strategy, _too_large(held[strategy], limit)))
        return tuple(other for kind, other in best.items() if kind != _kind(taken[1]))

    def _refused(self, machine: HostType, hosts: int, held: Mapping[Strategy, float]) -> Infeasible:
        if not held:
            ranks = hosts * machine.cluster.per_host
            return Infeasible(
                f"a batch of {self._batch} cannot be divided among {ranks} devices", False
            )
        least = min(held, key=lambda candidate: (held[candidate], candidate.micro_batch))
        needed = max(held[least], self._trials.peak(least, machine).reserved) / GIB
        have = machine.cluster.device.memory_gib
        return Infeasible(
            f"does not fit: each device needs at least {needed:.1f} GiB and has {have:.0f}", True
        )

    def _refined(
        self, step: SimulatedStep, strategy: Strategy, machine: HostType, hosts: int
    ) -> tuple[SimulatedStep, Strategy]:
        """Improve one property after another while the step becomes faster and the strategy fits.

        There are several rounds, because the best bucket size changes once the exchange overlaps
        with the next step.
        """
        for _ in range(_ROUNDS):
            before = strategy
            for number in range(len(self._changes(strategy, hosts))):
                rounds = self._changes(strategy, hosts)
                for other in rounds[number] if number < len(rounds) else ():
                    step, strategy = self._faster(step, strategy, other, machine)
            if strategy == before or strategy.exchange is Exchange.LOCAL:
                break
        return step, strategy

    def _changes(self, strategy: Strategy, hosts: int) -> list[list[Strategy]]:
        return refinements(strategy, self._trials.shape, hosts, self._allowed)

    def _faster(
        self, step: SimulatedStep, strategy: Strategy, other: Strategy, machine: HostType
    ) -> tuple[SimulatedStep, Strategy]:
        if other == strategy:
            return step, strategy
        tried = self._trials.step(other, machine)
        gain = _GAIN if other.exchange is not Exchange.PARAMETER_SERVER else _SERVER_GAIN
        is_faster = tried.seconds < gain * step.seconds
        if is_faster and self._trials.fits(other, machine):
            return tried, other
        return step, strategy


def _cost(pair: tuple[SimulatedStep, Strategy]) -> float:
    """Return the step time with a surcharge for each property that complicates a strategy."""
    step, strategy = pair
    degrees = (strategy.tensor, strategy.context, strategy.pipeline, strategy.expert)
    harder = sum(degree > 1 for degree in degrees) + bool(strategy.zero) + strategy.checkpoint
    harder += bool(strategy.layers)
    return step.seconds * (2 - _GAIN) ** harder


def _slower(step: SimulatedStep, best: SimulatedStep) -> str:
    times = step.seconds / best.seconds
    return f"{times - 1:.0%} slower" if times < _MANY else f"takes {times:.0f} times as long"


def _too_large(num_bytes: float, limit: float) -> str:
    return f"does not fit: {num_bytes / GIB:.1f} GiB of {limit / GIB:.0f}"


def _is_plain(strategy: Strategy) -> bool:
    """Return whether the strategy is data parallelism with complete, unsharded replicas."""
    degrees = (strategy.tensor, strategy.pipeline, strategy.context, strategy.expert)
    return strategy.data > 1 and max(degrees) == 1 and not strategy.zero and not strategy.checkpoint


def _kind(strategy: Strategy) -> tuple[bool, ...]:
    return (
        strategy.tensor > 1, strategy.context > 1, strategy.pipeline > 1, strategy.expert > 1,
        strategy.zero == 3, strategy.checkpoint, bool(strategy.layers),
    )  # fmt: skip
