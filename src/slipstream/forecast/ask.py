"""The public function `forecast`, which turns a model and options into ranked plans.

from slipstream.forecast import ForecastOptions, forecast

options = ForecastOptions(batch=256, gpus=("A100", "H100"), precision="bf16")
for plan in forecast("resnet50", options).plans[:3]:
    print(plan.machine.name, plan.hosts, plan.seconds_per_step)
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from slipstream.errors import UnsupportedError, UsageError
from slipstream.forecast.arguments import (
    PRECISIONS,
    check_machines,
    check_names,
    check_options,
)
from slipstream.forecast.garbage import rare_collections
from slipstream.forecast.hardware import Hardware, Link
from slipstream.forecast.hardware import load as load_hardware
from slipstream.forecast.observed.file import RunObservation, read_observations
from slipstream.forecast.options import ForecastOptions
from slipstream.forecast.search import intervals
from slipstream.forecast.search.machines import (
    HostType,
    best_precision,
    distinct,
    network,
    own,
    rented,
)
from slipstream.forecast.search.plan import Loss, Plan
from slipstream.forecast.search.search import Result, SearchRequest, search
from slipstream.forecast.simulate.job import Precision
from slipstream.forecast.simulate.parameters import load as load_parameters
from slipstream.forecast.work.resize import Resizable, resizable
from slipstream.forecast.work.workload import Workload

if TYPE_CHECKING:
    from slipstream.forecast.trace.sources import Source

Progress = Callable[[str, int, int], None]

_OWN = re.compile(r"\s*(\d+)\s*x\s*(\S.*?)\s*", re.IGNORECASE)


def _silent(action: str, done: int, total: int) -> None:
    del action, done, total


@rare_collections()
def forecast(
    model: str,
    options: ForecastOptions,
    *,
    progress: Progress = _silent,
    better: Callable[[Plan], None] = lambda plan: None,
) -> Result:
    """Return ranked plans to train a model, and rejected hosts with the reasons for rejection.

    The model is traced, never run, and no device is needed. The call usually blocks for a few
    seconds. For the largest models on a thousand devices, the call blocks for about a minute.

    Args:
        model: Source of the model: a function that returns the model, "package.module:make" or
            "file.py:make"; an ONNX file; a config.json of Hugging Face; or the name of an
            architecture, such as "resnet50".
        options: Options of the forecast.
        progress: Callback that receives the current action, the number of completed search steps
            and the number of all search steps (default: none). While the model is traced, both
            numbers of steps are 0.
        better: Callback that receives each plan that is better than all plans found before it
            (default: none).

    Raises:
        UsageError: An option is not allowed, or the model, device or cloud is unknown.
        UnsupportedError: A required package, such as PyTorch, is missing.
    """
    limit = math.inf if options.search_seconds is None else options.search_seconds
    ends_at = time.monotonic() + limit
    check_options(options)
    parameters = load_parameters(over=None if options.hardware is None else Path(options.hardware))
    check_names(options, parameters)
    machines, losses = _machines(options)
    if options.own is not None and options.max_hosts is not None:
        owned = options.max_hosts * machines[0].cluster.per_host
        options = replace(options, max_devices=min(options.max_devices, owned))
    check_machines(machines, options)
    progress(f"tracing {model}", 0, 0)
    source = _source(model, options)
    steps_per_epoch, steps = _steps(source, options)
    request = SearchRequest(
        options=options,
        model=_models(source, model, progress),
        machines=[_with_precision(machine, options.precision) for machine in machines],
        steps_per_epoch=steps_per_epoch,
        steps=steps,
        observations=_observations(options),
        master_copies=frozenset(name for name in PRECISIONS if source.whole(name)),
    )
    result = search(
        request, parameters, intervals.load(), progress, better, lambda: time.monotonic() > ends_at
    )
    return replace(result, losses=(*result.losses, *losses))


def _models(source: Source, name: str, progress: Progress) -> Callable[[Precision], Resizable]:
    """Return a function that traces the model in a given precision; the traces are cached."""

    @cache
    def model(precision: Precision) -> Resizable:
        whole = source.whole(precision)

        def traced(samples: int) -> Workload:
            progress(f"tracing {name} in {precision}, micro-batch {samples}", 0, 0)
            return source.trace(samples, precision=precision, whole=whole)

        return resizable(traced)

    return model


def _observations(options: ForecastOptions) -> list[RunObservation]:
    return [] if options.observations is None else read_observations(Path(options.observations))


def _steps(source: Source, options: ForecastOptions) -> tuple[int | None, float | None]:
    """Return the number of steps per epoch, and the number of steps of the whole training.

    Each of the two numbers is None if it is unknown.
    """
    batch, samples, total_tokens = options.batch, options.samples, options.total_tokens
    per_epoch = None if samples is None else math.ceil(samples / batch)
    if total_tokens is not None:
        if source.tokens is None:
            raise UsageError(
                f"total_tokens is {total_tokens:g}, but {source.name} reads no sequences of"
                " tokens: set samples and epochs instead"
            )
        return per_epoch, float(math.ceil(total_tokens / (batch * source.tokens)))
    if per_epoch is None or options.epochs is None:
        return per_epoch, None
    return per_epoch, per_epoch * options.epochs


def _with_precision(machine: HostType, precision: str | None) -> HostType:
    """Return the host type, set to compute in a precision.

    If the user requests no precision, the devices compute in their best precision.
    """
    best = best_precision(machine.cluster.device)
    chosen = next((name for name in PRECISIONS if name == precision), best)
    return replace(machine, precision=chosen)


def _source(model: str, options: ForecastOptions) -> Source:
    try:
        from slipstream.forecast.trace.sources import source
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UnsupportedError(
            "tracing a model needs the package torch; pip install 'slipstream[forecast]' torch"
        ) from error
    return source(model, shape=options.shape, tokens=options.tokens)


def _machines(options: ForecastOptions) -> tuple[list[HostType], list[Loss]]:
    """Return the types of hosts to search, and the rejected offers.

    An offer is rejected if a cheaper offer has the same devices and the same network.
    """
    hardware = load_hardware(*([] if options.hardware is None else [options.hardware]))
    link = None if options.network is None else network(hardware, options.network)
    if options.own is None:
        return _rented(hardware, options, link)
    return [_own(hardware, options.own, link, options.price)], []


def _rented(
    hardware: Hardware, options: ForecastOptions, link: Link | None
) -> tuple[list[HostType], list[Loss]]:
    gpus, clouds, markets = options.gpus, options.clouds, options.markets
    offers = list(rented(hardware, devices=gpus, clouds=clouds, markets=markets, network=link))
    if not offers:
        names = ", ".join([*gpus, *clouds, *markets])
        raise UsageError(
            f"no offer is known for {names}: allow other devices, clouds or markets, or name hosts"
            " of your own, such as own=8xA100"
        )
    cheapest = distinct(offers)
    dearer = [offer for offer in offers if all(offer is not other for other in cheapest)]
    return cheapest, [_undercut(offer, cheapest) for offer in dearer]


def _undercut(machine: HostType, cheapest: Iterable[HostType]) -> Loss:
    cheaper = next(offer for offer in cheapest if _kind(offer) == _kind(machine))
    return Loss(
        machine.name,
        f"${machine.dollars_per_hour or 0:.2f} an hour; {cheaper.name} has the same devices and"
        f" network for ${cheaper.dollars_per_hour or 0:.2f}",
    )


def _kind(machine: HostType) -> tuple[str, int, float]:
    cluster = machine.cluster
    between = cluster.between.gbyte_per_s if cluster.between else 0.0
    return cluster.device.name, cluster.per_host, between


def _own(hardware: Hardware, text: str, link: Link | None, price: float | None) -> HostType:
    match = _OWN.fullmatch(text)
    if match is None or int(match[1]) < 1:
        raise UsageError(f"own is {text!r}; allowed: devices of a host, such as 8xA100 or 1xT4")
    return own(hardware, match[2], int(match[1]), link, price)
