"""Check whether a model fits in memory, and which changes of strategy or hardware make it fit."""

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

# Largest factor by which the number of hosts is multiplied, and number of strategies whose memory
# is replayed for each factor. For 17 pairs of a model and a type of host, 13 models fit with a
# factor of at most 16, always with the first strategy. The other four pairs, all with DLRM, do not
# fit with factors up to 256 and the first 12 strategies.
_MOST_TIMES, _REPLAYED = 64, 3
# Number of host types for which more hosts than allowed are tried if nothing fits. Chosen by hand,
# to bound the time of the search.
_MOST_TYPES = 3


def fit(trials: Trials, machine: HostType, hosts: int, global_batch: int) -> MemoryFit | None:
    """Return the memory that a replica of the model needs, and the changes that make it fit.

    The replica is not sharded and recomputes nothing. The result is None if the global batch is not
    a multiple of the number of devices.

    Args:
        trials: Cached simulations of the model's strategies.
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
    """Return the least number of hosts with enough memory, and a strategy that fits on them.

    The function tries 2, 4, ... 64 times `hosts`, and returns None if even 64 times `hosts` have
    too little memory.

    Args:
        trials: Cached simulations of the model's strategies.
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
    """Yield a rejection for each entry of `short`, with the cheapest hardware that suffices.

    Args:
        short: Hosts with too little memory, as triples: the type of host, the number of hosts, and
            the reason why no strategy fits.
        fitting: Plans for hosts that have enough memory.
        trials_of: Function that returns the cached simulations of the model in a precision.
        global_batch: Samples per step.
        allowed: Strategies that the user allows.
    """
    most: dict[str, int] = {}
    for machine, hosts, _ in short:
        most[machine.name] = max(hosts, most.get(machine.name, 0))
    # If no plan fits, more hosts than allowed are tried for the types of hosts with most memory.
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
    """Return text that names the cheapest hosts that have enough memory.

    If the price of `machine` is unknown, the text names the smallest sufficient number of hosts.
    """
    alike = [plan for plan in fitting if plan.machine is machine]
    priced = machine.dollars_per_hour is not None
    best = min(fitting if priced else alike or fitting, key=_hourly)
    price = f" for ${_hourly(best)[0]:,.2f} an hour" if priced else ""
    return f"{several(best.machine, best.hosts)} would suffice{price}"


def _hourly(plan: Plan) -> tuple[float, int]:
    return (plan.machine.dollars_per_hour or 0.0) * plan.hosts, plan.hosts
