"""Table and JSON of the training benchmark."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from slipstream.bench.comm.table import RELAY_NOTE, describe_lab
from slipstream.bench.devices import CPU, gloo_has_code
from slipstream.bench.environment import environment, environment_line
from slipstream.bench.tables import make_table, not_run
from slipstream.bench.train.job import ALONE, TrainSamples
from slipstream.bench.train.measure import (
    GLOO,
    TrainResult,
    TrainSpec,
    last_loss,
    samples_per_second,
)
from slipstream.units import format_seconds


def table(spec: TrainSpec, results: Sequence[TrainResult]) -> Table:
    """Return a table with a row for each model and contender."""
    shown = make_table(
        f"training on {describe_lab(spec.lab)}{'' if spec.device == CPU else f', {spec.device}'}",
        words=("model", "contender"),
        numbers=("step", "samples/s", "x gloo", "alone", "of\nlimit", "loss", "differs"),
        caption=_caption(spec, results),
    )
    for result in results:
        millions = result.trained[0].parameters / 1e6
        name = f"{result.model}, {millions:.3g} M"
        for trained in result.trained:
            shown.add_row(name, trained.contender, *_cells(spec, result, trained))
            name = ""
        for peer in spec.missing():
            shown.add_row("", peer, "not run")
        shown.add_section()
    return shown


def as_json(spec: TrainSpec, results: Sequence[TrainResult]) -> dict[str, Any]:
    """Return the settings and all measured values as a JSON-compatible dictionary."""
    return {
        "spec": asdict(spec),
        **environment(),
        "missing": spec.missing(),
        "is_relayed": any(result.is_relayed for result in results),
        "results": [
            {
                "model": result.model,
                **asdict(trained),
                "median_seconds": statistics.median(trained.seconds),
                "samples_per_second": samples_per_second(trained),
                "times_gloo": result.times_faster(trained, GLOO),
                "limit_share": result.limit_share(trained, spec.lab),
                "loss_difference": result.loss_difference(trained),
                "agrees": result.agrees(trained),
            }
            for result in results
            for trained in result.trained
        ],
    }


def _caption(spec: TrainSpec, results: Sequence[TrainResult]) -> str:
    text = (
        "step: median of the rounds. x gloo, alone: samples/s divided by those of gloo and by those"
        " without communication. limit: the step without communication, or the transfer of the"
        " gradients if it takes longer. loss: mean of the last quarter of the steps. differs:"
        " difference from gloo's loss, relative to the first loss; ! if it is too large. across:"
        " overlap across steps."
    )
    if not gloo_has_code(spec.device):
        text += f" gloo gets copies in host memory, because it has no code for {spec.device}."
    text += not_run(spec.missing())
    if any(result.is_relayed for result in results):
        text += f" {RELAY_NOTE}"
    return f"{text}\n{environment_line()}"


def _cells(spec: TrainSpec, result: TrainResult, trained: TrainSamples) -> list[str]:
    faster = result.times_faster(trained, GLOO)
    alone = result.times_faster(trained, ALONE)
    difference = result.loss_difference(trained)
    share = result.limit_share(trained, spec.lab)
    is_alone = trained.contender == ALONE
    wrong = "" if result.agrees(trained) else " !"
    return [
        format_seconds(statistics.median(trained.seconds)),
        f"{samples_per_second(trained):,.3g}",
        "" if faster is None else f"{faster:.2f}",
        "" if alone is None else f"{alone:.2f}",
        "" if share is None else f"{share:.2f}",
        "" if is_alone else f"{last_loss(trained):.4f}",
        "" if difference is None else f"{difference:.1e}{wrong}",
    ]
