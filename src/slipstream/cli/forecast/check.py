"""`slipstream forecast check`: compare a forecast step with a real one on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.forecast.options import (
    HARDWARE,
    TRAINING,
    Batch,
    HardwareFile,
    Model,
    Optimizer,
    OptimizerChoice,
    PrecisionChoice,
    Shape,
    Tokens,
    parse_shape,
)
from slipstream.cli.forecast.progress import searching
from slipstream.cli.options import MEASUREMENT, AsJson, OutputFile
from slipstream.cli.output import emit
from slipstream.errors import UsageError
from slipstream.units import parse_duration

if TYPE_CHECKING:
    from rich.table import Table

    from slipstream.bench.forecast.check import DeviceStepCheck

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream forecast calibrate -o here.toml
  slipstream forecast check resnet18 --batch 16 --hardware here.toml
  slipstream forecast check bert-base --batch 32 --precision bf16 --device H100

One device, a GPU if there is one, else the CPU, trains MODEL on synthetic data for some seconds.
Pass the measured rate to --alone for forecasts of several such devices.
"""


LEAST_SECONDS = 0.1  # chosen by hand, not measured


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("check", epilog=EXAMPLES)(check)


def check(
    model: Model,
    batch: Batch,
    shape: Shape = None,
    tokens: Tokens = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=HARDWARE,
            show_default="here, in --hardware",
            help="Name of this machine's device: H100.",
        ),
    ] = None,
    hardware: HardwareFile = None,
    precision: Annotated[
        PrecisionChoice,
        typer.Option(rich_help_panel=TRAINING, help="Data type of matrix products."),
    ] = PrecisionChoice.FP32,
    optimizer: Optimizer = OptimizerChoice.ADAM,
    time: Annotated[
        str,
        typer.Option(
            metavar="TIME", rich_help_panel=MEASUREMENT, help="Duration of the measurement: 10s."
        ),
    ] = "10s",
    as_json: AsJson = False,
    output: OutputFile = None,
) -> None:
    """Forecast a step of MODEL on one device, then run steps on this machine."""
    from slipstream.bench.forecast import check as forecast_check

    seconds = parse_duration(time, "time", bare_seconds=True)
    if seconds < LEAST_SECONDS:
        raise UsageError(f"the time is {time!r}; allowed: {LEAST_SECONDS:g}s and more")
    options = forecast_check.StepCheckOptions(
        batch=batch,
        device=device,
        hardware=None if hardware is None else str(hardware),
        shape=None if shape is None else parse_shape(shape),
        tokens=tokens,
        precision=precision.value,
        optimizer=optimizer.value,
        seconds=seconds,
    )
    with searching() as display:
        result = forecast_check.check(model, options, progress=display.tell)
    summary = (
        f"{result.steps} steps; limited by {result.plan.limit}. For several such devices:"
        f" --alone {result.alone}"
    )
    emit(result.as_json(), [_table(result), summary], as_json=as_json, output=output)


def _table(result: DeviceStepCheck) -> Table:
    from rich.table import Table

    from slipstream.forecast.report.terminal import duration, gib
    from slipstream.forecast.search.plan import Interval

    plan = result.plan
    rows = [("step", duration, plan.seconds_per_step, Interval(result.seconds, *result.spread))]
    if result.memory is not None:
        rows.append(("memory", gib, plan.memory, Interval(*[float(result.memory)] * 3)))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("", "forecast", "eight in ten", "measured", "off"):
        table.add_column(name, justify="right" if name else "left")
    for name, shown, forecast, measured in rows:
        off = forecast.value / measured.value - 1
        table.add_row(name, *shown(forecast), shown(measured)[0], f"{off:+.1%}")
    return table
