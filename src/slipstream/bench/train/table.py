"""Table and JSON of the training benchmark."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from slipstream.bench.comm.table import describe_lab
from slipstream.bench.environment import environment, environment_line
from slipstream.bench.tables import make_table
from slipstream.bench.train.job import ALONE, TrainSamples
from slipstream.bench.train.measure import (
    PEERS,
    TrainResult,
    TrainSpec,
    last_loss,
    samples_per_second,
)
from slipstream.units import format_seconds


def table(spec: TrainSpec, results: Sequence[TrainResult]) -> Table:
    """Return a table with a row for each model and contender."""
    shown = make_table(
        f"training on {describe_lab(spec.lab)}",
        words=("model", "contender"),
        numbers=("step", "samples/s", "x gloo", "alone", "loss", "differs"),
        caption=(
            "step: median of the rounds. x gloo, alone: samples/s divided by those of gloo and by"
            " those without communication. loss: mean of the last quarter of the steps. differs:"
            " difference from gloo's loss, relative to the first loss; ! if it is too large."
            f" across: overlap across steps.\n{environment_line()}"
        ),
    )
    for result in results:
        millions = result.trained[0].parameters / 1e6
        name = f"{result.model}, {millions:.3g} M"
        for trained in result.trained:
            shown.add_row(name, trained.contender, *_cells(result, trained))
            name = ""
        shown.add_section()
    return shown


def as_json(spec: TrainSpec, results: Sequence[TrainResult]) -> dict[str, Any]:
    """Return the settings and all measured values as a JSON-compatible dictionary."""
    return {
        "spec": asdict(spec),
        **environment(),
        "results": [
            {
                "model": result.model,
                **asdict(trained),
                "median_seconds": statistics.median(trained.seconds),
                "samples_per_second": samples_per_second(trained),
                "times_gloo": result.times_faster(trained, PEERS[0]),
                "loss_difference": result.loss_difference(trained),
                "agrees": result.agrees(trained),
            }
            for result in results
            for trained in result.trained
        ],
    }


def _cells(result: TrainResult, trained: TrainSamples) -> list[str]:
    faster = result.times_faster(trained, PEERS[0])
    alone = result.times_faster(trained, ALONE)
    difference = result.loss_difference(trained)
    is_alone = trained.contender == ALONE
    wrong = "" if result.agrees(trained) else " !"
    return [
        format_seconds(statistics.median(trained.seconds)),
        f"{samples_per_second(trained):,.3g}",
        "" if faster is None else f"{faster:.2f}",
        "" if alone is None else f"{alone:.2f}",
        "" if is_alone else f"{last_loss(trained):.4f}",
        "" if difference is None else f"{difference:.1e}{wrong}",
    ]
