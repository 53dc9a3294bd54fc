"""`slipstream forecast check`: compare a forecast step with a real one on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from slipstream.cli.forecast.asked import OptimizerChoice, PrecisionChoice, parse_shape
from slipstream.cli.forecast.progress import searching
from slipstream.cli.output import make_console

if TYPE_CHECKING:
    from slipstream.bench.forecast.check import DeviceStepCheck

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream forecast calibrate --out here.toml
  slipstream forecast check resnet18 --batch 16 --hardware here.toml
  slipstream forecast check bert-base --batch 32 --precision bf16 --device H100

\b
One device, a GPU if there is one, else the CPU, trains MODEL on synthetic data for some seconds.
Pass the measured rate to --alone for forecasts of several such devices.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("check", epilog=EXAMPLES)(check)


def check(
    model: Annotated[
        str, typer.Argument(help="Architecture, package.module:make or file.py:make.")
    ],
    batch: Annotated[int, typer.Option(min=1, help="Samples per step.")],
    device: Annotated[
        str | None,
        typer.Option(help="Name of this device, such as H100. [dim]here, in --hardware[/dim]"),
    ] = None,
    hardware: Annotated[
        Path | None, typer.Option(help="Data file with the device, from calibrate.")
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(help="Shape of a sample, such as 3,224,224, if the model does not define it."),
    ] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="Sequence length.")] = None,
    precision: Annotated[
        PrecisionChoice, typer.Option(help="Data type of matrix products.")
    ] = PrecisionChoice.FP32,
    optimizer: Annotated[OptimizerChoice, typer.Option(help="Optimizer of the parameters.")] = (
        OptimizerChoice.ADAM
    ),
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Duration of the measurement in seconds.")
    ] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Forecast a step of MODEL on one device, then run steps on this machine."""
    from slipstream.bench.forecast import check as forecast_check

    with searching() as watching:
        found = forecast_check.check(
            model,
            batch=batch,
            device=device,
            hardware=None if hardware is None else str(hardware),
            shape=None if shape is None else parse_shape(shape),
            tokens=tokens,
            precision=precision.value,
            optimizer=optimizer.value,
            seconds=seconds,
            progress=watching.tell,
        )
    if as_json:
        print(json.dumps(found.as_json(), indent=1))
        return
    console = make_console(sys.stdout)
    console.print(_table(found))
    console.print(
        f"{found.steps} steps; limited by {found.plan.limit}. For several such devices:"
        f" --alone {found.alone}",
        markup=False,
        highlight=False,
    )


def _table(found: DeviceStepCheck) -> Table:
    from slipstream.forecast.report.terminal import duration, gib
    from slipstream.forecast.search.plan import Interval

    plan = found.plan
    rows = [("step", duration, plan.seconds_per_step, Interval(found.seconds, *found.spread))]
    if found.memory is not None:
        rows.append(("memory", gib, plan.memory, Interval(*[float(found.memory)] * 3)))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("", "forecast", "eight in ten", "measured", "off"):
        table.add_column(name, justify="right" if name else "left")
    for name, shown, forecast, measured in rows:
        off = forecast.value / measured.value - 1
        table.add_row(name, *shown(forecast), shown(measured)[0], f"{off:+.1%}")
    return table
