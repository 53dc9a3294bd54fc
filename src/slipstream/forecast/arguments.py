"""Validation of the options of a forecast, before any model is traced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from slipstream.errors import UsageError
from slipstream.forecast.options import ForecastOptions
from slipstream.forecast.search.candidates import ANY
from slipstream.forecast.search.machines import HostType
from slipstream.forecast.simulate.job import Precision
from slipstream.forecast.simulate.parameters import Parameters
from slipstream.forecast.work.strategy import WIRE_SHARE, Optimizer

OPTIMIZERS: Mapping[str, Optimizer] = {member.name.lower(): member for member in Optimizer}
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
MARKETS = ("on-demand", "spot")


def check_options(options: ForecastOptions) -> None:
    """Raise UsageError for a number out of range, or for options that contradict each other."""
    _check_counts(options)
    _check_amounts(options)
    _check_alone(options)
    _check_target(options)
    _check_own(options)


def _check_counts(options: ForecastOptions) -> None:
    for name, count in (
        ("batch", options.batch),
        ("max_devices", options.max_devices),
        ("samples", options.samples),
        ("max_hosts", options.max_hosts),
        ("local_steps", options.local_steps),
        ("alone", options.alone and options.alone[1]),
    ):
        if count is not None and count < 1:
            raise UsageError(f"{name} is {count}; at least 1 is needed")


def _check_amounts(options: ForecastOptions) -> None:
    for name, amount in (
        ("epochs", options.epochs),
        ("total_tokens", options.total_tokens),
        ("deadline", options.deadline),
        ("budget", options.budget),
        ("price", options.price),
        ("alone", options.alone and options.alone[0]),
        ("input_rate", options.input_rate),
        ("search_seconds", options.search_seconds),
    ):
        if amount is not None and not 0 < amount < float("inf"):
            raise UsageError(f"{name} is {amount:g}; more than 0 is needed")


def _check_alone(options: ForecastOptions) -> None:
    alone, input_rate = options.alone, options.input_rate
    if alone is not None and input_rate is not None and alone[0] > input_rate:
        raise UsageError(
            f"alone is {alone[0]:g} samples per second and input_rate is {input_rate:g}: a host"
            " reads at least as many samples as one device was measured to train;"
            " increase input_rate"
        )


def _check_target(options: ForecastOptions) -> None:
    epochs, total_tokens = options.epochs, options.total_tokens
    if epochs is not None and options.samples is None:
        raise UsageError(f"epochs is {epochs:g}, but samples is missing: set samples per epoch too")
    if epochs is not None and total_tokens is not None:
        raise UsageError(
            f"total_tokens is {total_tokens:g} and epochs is {epochs:g}, but only one target is"
            " allowed: set one of them"
        )
    for name, limit in (("deadline", options.deadline), ("budget", options.budget)):
        if limit is not None and epochs is None and total_tokens is None:
            raise UsageError(f"{name} needs a target: set samples and epochs, or total_tokens")


def _check_own(options: ForecastOptions) -> None:
    own, hosts = options.own, options.max_hosts
    rate = options.alone and options.alone[0]
    if own is None:
        for name, value in (("max_hosts", hosts), ("price", options.price), ("alone", rate)):
            if value is not None:
                raise UsageError(
                    f"{name} is {value:g}, which applies to your own hosts only: name them, such"
                    " as own=8xA100"
                )
    elif options.gpus or options.clouds:
        raise UsageError(f"own is {own!r}, so nothing is rented: leave gpus and clouds out")
    elif hosts is not None and hosts > 1 and options.network is None:
        raise UsageError(
            f"own is {own!r} and max_hosts is {hosts}, but the network between the hosts is"
            " unknown: set network, such as network=100g"
        )


def check_names(options: ForecastOptions, parameters: Parameters) -> None:
    """Raise UsageError for an unknown name, and list the allowed names."""
    precision = options.precision
    for name, value, allowed in (
        *(() if precision is None else (("precision", precision, PRECISIONS),)),
        ("optimizer", options.optimizer, OPTIMIZERS),
        ("runtime", options.runtime, parameters.runtimes),
        ("codec", options.codec, (*WIRE_SHARE, ANY)),
        *(("market", market, MARKETS) for market in options.markets),
    ):
        if value not in allowed:
            raise UsageError(f"{name} is {value!r}; allowed: {', '.join(sorted(allowed))}")


def check_machines(machines: Sequence[HostType], options: ForecastOptions) -> None:
    """Raise UsageError for a budget without prices, or if every host has too many devices.

    A budget is allowed only if the price of at least one type of host is known. At least one type
    of host must have at most `options.max_devices` devices.
    """
    own, budget = options.own, options.budget
    if budget is not None and all(machine.dollars_per_hour is None for machine in machines):
        raise UsageError(
            f"budget is ${budget:,.0f}, but {own} has no price: set price in dollars per hour"
        )
    smallest = min(machines, key=lambda machine: machine.cluster.per_host)
    if smallest.cluster.per_host > options.max_devices:
        raise UsageError(
            f"max_devices is {options.max_devices}, but the smallest host, {smallest.name}, has"
            f" {smallest.cluster.per_host} devices: increase max_devices"
            + (" or allow other devices" if own is None else "")
        )
