"""The border of the forecast: from what a user says to ways to train, ranked.

from slipstream import forecast

result = forecast.forecast("resnet50", batch=256, gpus=("A100", "H100"), precision="bf16")
for plan in result.plans[:3]:
    print(plan.machine.name, plan.hosts, plan.seconds_per_step)
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from slipstream.errors import UnsupportedError, UsageError
from slipstream.forecast.arguments import (
    OPTIMIZERS,
    PRECISIONS,
    check_alone,
    check_names,
    check_numbers,
    check_own,
    check_room,
    check_target,
)
from slipstream.forecast.garbage import rare_collections
from slipstream.forecast.hardware import Hardware, Link
from slipstream.forecast.hardware import load as load_hardware
from slipstream.forecast.search import intervals, machines
from slipstream.forecast.search.candidates import Allowed
from slipstream.forecast.search.machines import Machine
from slipstream.forecast.search.plan import Loss, Plan
from slipstream.forecast.search.search import Request, Result, search
from slipstream.forecast.simulate import parameters
from slipstream.forecast.simulate.job import Alone, Precision
from slipstream.forecast.work.resize import Resizable, resizable
from slipstream.forecast.work.workload import Workload

if TYPE_CHECKING:
    from slipstream.forecast.trace.sources import Source

Progress = Callable[[str, int, int], None]

_OWN = re.compile(r"\s*(\d+)\s*x\s*(\S.*?)\s*", re.IGNORECASE)


def _silent(what: str, done: int, of: int) -> None:
    del what, done, of


@rare_collections()
def forecast(
    model: str,
    *,
    batch: int,
    shape: Sequence[int] | None = None,
    tokens: int | None = None,
    gpus: Sequence[str] = (),
    clouds: Sequence[str] = (),
    markets: Sequence[str] = ("on-demand",),
    own: str | None = None,
    hosts: int | None = None,
    price: float | None = None,
    network: str | None = None,
    hardware: str | None = None,
    most_devices: int = 64,
    samples: int | None = None,
    epochs: float | None = None,
    total_tokens: float | None = None,
    deadline: float | None = None,
    budget: float | None = None,
    precision: str | None = None,
    optimizer: str = "adam",
    runtime: str = "pytorch2",
    codec: str = "none",
    local_steps: int = 1,
    alone: tuple[float, int] | None = None,
    input_rate: float | None = None,
    search_seconds: float | None = None,
    progress: Progress = _silent,
    better: Callable[[Plan], None] = lambda plan: None,
) -> Result:
    """Returns ways to train a model, ranked, and why others are not among them.

    Nothing is run and no device is needed. Blocks for seconds; about a minute for the largest
    models on a thousand devices.

    Args:
        model: a function that makes it, "package.module:make" or "file.py:make"; an ONNX file; a
            config.json of Hugging Face; or the name of an architecture, as "resnet50".
        batch: samples per step, of all devices together.
        shape: of one sample, where the model does not say it.
        tokens: of a sequence; None: as many as the model is trained with.
        gpus: devices that may be rented, by name; empty: all.
        clouds: that may be rented from; empty: all.
        markets: "on-demand" and "spot".
        own: hosts that are there already, as "8xA100"; nothing is rented then.
        hosts: of `own`, at most; None: as many as `most_devices` allows.
        price: of a host of `own`, dollars per hour.
        network: between hosts, as "400g" or "infiniband-ndr"; None: that of an offer, and none
            between hosts of one's own.
        hardware: a data file of the user's or a folder of them, as `slipstream forecast calibrate`
            writes one: devices, links, offers, and what software reaches of them.
        most_devices: of a plan.
        samples: of an epoch; None: not known.
        epochs: to the target; needs `samples`.
        total_tokens: number of tokens that the whole training sees, in the place of `epochs`.
        deadline: seconds to the target; needs `epochs` or `total_tokens`.
        budget: dollars to the target; needs a target as `deadline` does, and prices.
        precision: numbers that products multiply: "fp32", "tf32", "fp16" or "bf16"; None: "bf16" on
            each device that is made for it, else "fp16" if it is made for that, else "fp32".
        optimizer: "sgd", "momentum" or "adam".
        runtime: name of a framework whose parameters were fitted, as "pytorch2".
        codec: of gradients between hosts: "none", "fp16", "bf16", "int8", or "any", the fastest.
        local_steps: between exchanges of local SGD, which is tried too if that is more than 1.
        alone: samples per second that one device of `own` was measured to train, and how many ran
            at once; narrows all intervals. None: it was not measured.
        input_rate: samples per second that a host reads and decodes; None: as many as are needed.
        search_seconds: time after which no more hosts are tried once there is a plan, counted from
            the call; None: all are tried.
        progress: told what is done, how many steps of the search are and how many there are; 0 of 0
            while the model is traced.
        better: told each plan that ranks before all that were found until then.

    Raises:
        UsageError: an argument is not allowed, or there is no such model, device or cloud.
        UnsupportedError: a package is missing.
    """
    over_at = math.inf if search_seconds is None else time.monotonic() + search_seconds
    check_numbers(
        {"batch": batch, "most_devices": most_devices, "samples": samples, "hosts": hosts,
         "local_steps": local_steps, "alone": alone and alone[1]},
        {"epochs": epochs, "total_tokens": total_tokens, "deadline": deadline, "budget": budget,
         "price": price, "alone": alone and alone[0], "input_rate": input_rate,
         "search_seconds": search_seconds},
    )  # fmt: skip
    check_alone(alone, input_rate)
    check_target(samples, epochs, total_tokens, deadline, budget)
    check_own(own, hosts, price, alone and alone[0], gpus, clouds, network)
    fitted = parameters.load(over=None if hardware is None else Path(hardware))
    check_names(precision, optimizer, runtime, codec, markets, fitted)
    known = load_hardware(*([] if hardware is None else [hardware]))
    link = None if network is None else machines.network(known, network)
    lost: list[Loss] = []
    if own is None:
        kept, lost = _rented(known, gpus, clouds, markets, link)
    else:
        kept = [_own(known, own, link, price)]
        if hosts is not None:
            most_devices = min(most_devices, hosts * kept[0].cluster.per_host)
    _check_kept(kept, most_devices, budget, own)
    progress(f"tracing {model}", 0, 0)
    found = _source(model, shape, tokens)
    per_epoch, steps = _steps(found, batch, samples, epochs, total_tokens)
    request = Request(
        model=_models(found, model, progress),
        global_batch=batch,
        machines=[_with_precision(each, precision) for each in kept],
        most_devices=most_devices,
        steps_per_epoch=per_epoch,
        steps=steps,
        deadline=deadline,
        budget=budget,
        optimizer=OPTIMIZERS[optimizer],
        runtime=runtime,
        whole=frozenset(each for each in PRECISIONS if found.whole(each)),
        allowed=Allowed(codec=codec, period=local_steps),
        alone=None if alone is None else Alone(*alone),
        input_rate=input_rate,
    )
    result = search(
        request, fitted, intervals.load(), progress, better, lambda: time.monotonic() > over_at
    )
    return replace(result, losses=(*result.losses, *lost))


def _models(source: Source, name: str, progress: Progress) -> Callable[[Precision], Resizable]:
    """Gives the model in a precision, which is traced when it is first needed."""

    @cache
    def model(precision: Precision) -> Resizable:
        whole = source.whole(precision)

        def traced(samples: int) -> Workload:
            progress(f"tracing {name} in {precision}, {samples} at once", 0, 0)
            return source.trace(samples, precision=precision, whole=whole)

        return resizable(traced)

    return model


def _steps(
    source: Source,
    batch: int,
    samples: int | None,
    epochs: float | None,
    total_tokens: float | None,
) -> tuple[int | None, float | None]:
    """Returns the steps of an epoch and those to the target; None: not known."""
    per_epoch = None if samples is None else math.ceil(samples / batch)
    if total_tokens is not None:
        if source.tokens is None:
            raise UsageError(
                f"total_tokens is {total_tokens:g}, and {source.name} reads no sequences of"
                " tokens: say samples and epochs"
            )
        return per_epoch, float(math.ceil(total_tokens / (batch * source.tokens)))
    return per_epoch, None if per_epoch is None or epochs is None else per_epoch * epochs


def _with_precision(machine: Machine, precision: str | None) -> Machine:
    """A machine with the precision that is asked, or with the one that its devices are made for."""
    own = machines.best_precision(machine.cluster.device)
    chosen = next((each for each in PRECISIONS if each == precision), own)
    return replace(machine, precision=chosen)


def _check_kept(
    kept: Sequence[Machine], most_devices: int, budget: float | None, own: str | None
) -> None:
    if budget is not None and all(each.dollars_per_hour is None for each in kept):
        raise UsageError(f"the budget is ${budget:,.0f} and {own} has no price: say it per hour")
    check_room(kept, most_devices, "cloud" if own is None else "own")


def _source(model: str, shape: Sequence[int] | None, tokens: int | None) -> Source:
    try:
        from slipstream.forecast.trace.sources import source
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UnsupportedError(
            "tracing a model needs the package torch; pip install 'slipstream[forecast]' torch"
        ) from error
    return source(model, shape=shape, tokens=tokens)


def _rented(
    hardware: Hardware,
    gpus: Sequence[str],
    clouds: Sequence[str],
    markets: Sequence[str],
    link: Link | None,
) -> tuple[list[Machine], list[Loss]]:
    """Returns what can be rented, and what another undercuts."""
    offers = list(
        machines.rented(hardware, devices=gpus, clouds=clouds, markets=markets, network=link)
    )
    if not offers:
        asked = ", ".join([*gpus, *clouds, *markets])
        raise UsageError(
            f"no offer is known for {asked}: allow other devices, clouds or markets, or name hosts"
            " of your own, as 8xA100"
        )
    kept = machines.distinct(offers)
    dearer = [each for each in offers if all(each is not other for other in kept)]
    return kept, [_undercut(each, kept) for each in dearer]


def _undercut(machine: Machine, kept: Iterable[Machine]) -> Loss:
    cheaper = next(each for each in kept if _kind(each) == _kind(machine))
    return Loss(
        machine.name,
        f"${machine.dollars_per_hour or 0:.2f} an hour; {cheaper.name} has the same devices and"
        f" network for ${cheaper.dollars_per_hour or 0:.2f}",
    )


def _kind(machine: Machine) -> tuple[str, int, float]:
    cluster = machine.cluster
    between = cluster.between.gbyte_per_s if cluster.between else 0.0
    return cluster.device.name, cluster.per_host, between


def _own(hardware: Hardware, text: str, link: Link | None, price: float | None) -> Machine:
    found = _OWN.fullmatch(text)
    if found is None or int(found[1]) < 1:
        raise UsageError(f"own is {text!r}; allowed: devices of a host, such as 8xA100 or 1xT4")
    return machines.own(hardware, found[2], int(found[1]), link, price)
