"""Memory fit of a model, and the cheapest change of strategy or hardware with which it fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from slipstream.forecast.memory import PeakMemory, fits
from slipstream.forecast.search.candidates import Allowed, strategies
from slipstream.forecast.search.machines import HostType, memory_gib, several
from slipstream.forecast.search.plan import Loss, MemoryFit, Plan, Remedy
from slipstream.forecast.search.trials import Trials
from slipstream.forecast.simulate.job import Precision
from slipstream.forecast.work.strategy import Strategy
from slipstream.units import GIB

# Largest multiple of the hosts that is tried, and number of strategies replayed on each. Of 17
# pairs of a model and a host, 13 fit on at most 16 times the host, always with the first strategy;
# the others, all of DLRM, fit on none of 256 with the first 12 strategies.
_MOST_TIMES, _REPLAYED = 64, 3
# Number of host types for which more hosts than allowed are tried if nothing fits. Chosen by hand,
# to bound the time of the search.
_MOST_TYPES = 3


def fit(trials: Trials, machine: HostType, hosts: int, global_batch: int) -> MemoryFit | None:
    """Return whether plain replicas fit in memory, and the changes with which they fit.

    The result is None if the global batch is not a multiple of the number of devices.

    Args:
        trials: Trials of the model.
        machine: Type of every host.
        hosts: Number of hosts; every device has one replica.
        global_batch: Samples per step.
    """
    ranks = hosts * machine.cluster.per_host
    if global_batch % ranks:
        return None
    limit = int(machine.cluster.device.memory_gib * GIB)

    def peak_of(strategy: Strategy) -> PeakMemory | None:
        if not trials.shape.divides(strategy.tensor) or trials.least(strategy) > limit:
            return None
        return trials.peak(strategy, machine)

    plain = Strategy(data=ranks, micro_batch=global_batch // ranks)
    changes = fits(plain, peak_of, device_bytes=limit, most_tensor=machine.cluster.per_host)
    remedies = [
        Remedy(
            change.words,
            change.strategy,
            change.peak.reserved,
            trials.step(change.strategy, machine).seconds,
        )
        for change in changes
        if change.words
    ]
    peak = peak_of(plain)
    needed = trials.least(plain) if peak is None else peak.reserved
    return MemoryFit(
        machine=machine, hosts=hosts, strategy=plain, num_bytes=needed, is_least=peak is None,
        remedies=tuple(sorted(remedies, key=lambda remedy: remedy.seconds)),
    )  # fmt: skip


def enough(
    trials: Trials, machine: HostType, hosts: int, global_batch: int, allowed: Allowed
) -> tuple[int, Strategy] | None:
    """Return the smallest sufficient number of hosts, and a strategy that fits on them.

    The function tries 2, 4, ... 64 times the hosts, and returns None if none of them suffices.

    Args:
        trials: Trials of the model.
        machine: Type of every host.
        hosts: Number of hosts that have too little memory.
        global_batch: Samples per step.
        allowed: Strategies that the user allows.
    """
    limit = machine.cluster.device.memory_gib * GIB
    times = 2
    while times <= _MOST_TIMES:
        count = hosts * times
        ranks = count * machine.cluster.per_host
        bounds = [
            (trials.least(strategy), index, strategy)
            for index, strategy in enumerate(
                strategies(trials.shape, ranks, machine.cluster.per_host, global_batch, allowed)
            )
        ]
        for least, _, strategy in sorted(bounds)[:_REPLAYED]:
            if least <= limit and trials.fits(strategy, machine):
                return count, strategy
        times *= 2
    return None


def shortages(
    short: Sequence[tuple[HostType, int, str]],
    fitting: Sequence[Plan],
    trials_of: Callable[[Precision], Trials],
    global_batch: int,
    allowed: Allowed,
) -> Iterator[Loss]:
    """Yield the hosts with too little memory, each with the cheapest sufficient hardware.

    Args:
        short: Host types, numbers of hosts, and the reasons why nothing fits on them.
        fitting: Plans that fit on other hosts.
        trials_of: Function that returns the trials of the model in a precision.
        global_batch: Samples per step.
        allowed: Strategies that the user allows.
    """
    most: dict[str, int] = {}
    for machine, hosts, _ in short:
        most[machine.name] = max(hosts, most.get(machine.name, 0))
    # If nothing fits, more hosts than allowed are tried for the types with most memory.
    largest = sorted(
        short, key=lambda shortage: memory_gib(shortage[0], most[shortage[0].name]), reverse=True
    )
    considered = list(dict.fromkeys(machine.name for machine, _, _ in largest))[:_MOST_TYPES]
    changes: dict[str, str] = {}
    for machine, hosts, why in short:
        if not fitting and machine.name in considered and machine.name not in changes:
            trials = trials_of(machine.precision)
            sufficient = enough(trials, machine, most[machine.name], global_batch, allowed)
            changes[machine.name] = (
                f"{sufficient[0]} of these hosts would suffice" if sufficient else ""
            )
        change = _cheapest(machine, fitting) if fitting else changes.get(machine.name, "")
        yield Loss(several(machine, hosts), why, change)


def _cheapest(machine: HostType, fitting: Sequence[Plan]) -> str:
    """Return the name of the cheapest sufficient hosts: by price, or else the fewest hosts."""
    alike = [plan for plan in fitting if plan.machine is machine]
    priced = machine.dollars_per_hour is not None
    best = min(fitting if priced else alike or fitting, key=_hourly)
    price = f" for ${_hourly(best)[0]:,.2f} an hour" if priced else ""
    return f"{several(best.machine, best.hosts)} would suffice{price}"


def _hourly(plan: Plan) -> tuple[float, int]:
    return (plan.machine.dollars_per_hour or 0.0) * plan.hosts, plan.hosts
