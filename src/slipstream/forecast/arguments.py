"""What a forecast is asked is checked before anything is traced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from slipstream.errors import UsageError
from slipstream.forecast.search.candidates import ANY
from slipstream.forecast.search.machines import Machine
from slipstream.forecast.simulate.job import Precision
from slipstream.forecast.simulate.parameters import Parameters
from slipstream.forecast.work.strategy import WIRE_SHARE, Optimizer

OPTIMIZERS: Mapping[str, Optimizer] = {each.name.lower(): each for each in Optimizer}
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
MARKETS = ("on-demand", "spot")


def check_numbers(counts: Mapping[str, int | None], amounts: Mapping[str, float | None]) -> None:
    """Raise UsageError for a count below 1, or an amount that is not above 0."""
    for name, count in counts.items():
        if count is not None and count < 1:
            raise UsageError(f"{name} is {count}; at least 1 is needed")
    for name, amount in amounts.items():
        if amount is not None and not 0 < amount < float("inf"):
            raise UsageError(f"{name} is {amount:g}; more than 0 is needed")


def check_target(
    samples: int | None,
    epochs: float | None,
    total_tokens: float | None,
    deadline: float | None,
    budget: float | None,
) -> None:
    """Raise UsageError for two targets, or for a limit without a target."""
    if epochs is not None and samples is None:
        raise UsageError(f"epochs is {epochs:g}: say the samples of an epoch too")
    if epochs is not None and total_tokens is not None:
        raise UsageError(
            f"total_tokens is {total_tokens:g} and epochs {epochs:g}, both are targets: say one"
        )
    for name, limit in (("deadline", deadline), ("budget", budget)):
        if limit is not None and epochs is None and total_tokens is None:
            raise UsageError(
                f"a {name} needs a target: say samples and epochs too, or total_tokens"
            )


def check_alone(alone: tuple[float, int] | None, input_rate: float | None) -> None:
    """Raise UsageError for hosts that read less than one device was measured to train."""
    if alone is not None and input_rate is not None and alone[0] > input_rate:
        raise UsageError(
            f"alone is {alone[0]:g} samples per second and input_rate {input_rate:g}: a host reads"
            " at least what one device was measured to train"
        )


def check_own(
    own: str | None,
    hosts: int | None,
    price: float | None,
    alone: float | None,
    gpus: Sequence[str],
    clouds: Sequence[str],
    network: str | None,
) -> None:
    """Raise UsageError for what goes with hosts of one's own only, or with clouds only."""
    if own is None:
        for name, value in (("hosts", hosts), ("price", price), ("alone", alone)):
            if value is not None:
                raise UsageError(
                    f"{name} is {value:g}, of hosts of your own: say which, own=8xA100"
                )
    elif gpus or clouds:
        raise UsageError(f"own is {own!r}, so nothing is rented: leave gpus and clouds out")
    elif hosts is not None and hosts > 1 and network is None:
        raise UsageError(f"{hosts} hosts of {own}: say the network that joins them, as 100g")


def check_names(
    precision: str | None,
    optimizer: str,
    runtime: str,
    codec: str,
    markets: Sequence[str],
    fitted: Parameters,
) -> None:
    """Raise UsageError for a name that is not known, with those that are."""
    for name, value, allowed in (
        *(() if precision is None else (("precision", precision, PRECISIONS),)),
        ("optimizer", optimizer, OPTIMIZERS),
        ("runtime", runtime, fitted.runtimes),
        ("codec", codec, (*WIRE_SHARE, ANY)),
        *(("market", market, MARKETS) for market in markets),
    ):
        if value not in allowed:
            raise UsageError(f"{name} is {value!r}; allowed are {', '.join(sorted(allowed))}")


def check_room(kept: Sequence[Machine], most_devices: int, what: str) -> None:
    """Raise UsageError where the smallest host has more devices than are allowed."""
    smallest = min(kept, key=lambda each: each.cluster.per_host)
    if smallest.cluster.per_host > most_devices:
        raise UsageError(
            f"at most {most_devices} devices are allowed, and the smallest host, {smallest.name},"
            f" has {smallest.cluster.per_host}: allow as many"
            + (", or other devices" if what == "cloud" else "")
        )
