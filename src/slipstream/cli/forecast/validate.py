"""`slipstream forecast validate`: errors of forecasts against published measurements."""

from __future__ import annotations

import json
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress

from slipstream.cli.files import writable
from slipstream.cli.output import make_console, stderr_console

if TYPE_CHECKING:
    from slipstream.forecast.search.intervals import Intervals
    from slipstream.forecast.validate.score import ValidationReport

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream forecast validate measurements.csv
  slipstream forecast validate measurements.csv --by device
  slipstream forecast validate measurements.csv --leave model --json
  slipstream forecast validate measurements.csv --html errors.html

\b
The columns are source, model, gpu, gpus_per_node, network_gbps, framework, batch_per_gpu, num_gpus,
images_per_sec_or_speedup, unit and address. Each row is forecast by parameters that were fitted
without its source; what cannot be read is listed with the reason. Rows that state a peak of memory
("mem_GiB=71.9" in the model) are judged by it too. Models are traced first, which
takes some seconds for each.
[bold]Exit code[/bold]: 2 if the table cannot be read.
"""


class LeaveChoice(str, Enum):
    """Rows that are excluded from the calibration when a row is forecast."""

    SOURCE = "source"
    MODEL = "model"
    NONE = "none"


class KeyChoice(str, Enum):
    """Columns by which rows are grouped."""

    SOURCE = "source"
    MODEL = "model"
    DEVICE = "device"
    SCALE = "scale"
    RUNTIME = "runtime"


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("validate", epilog=EXAMPLES)(validate_table)


def validate_table(
    table: Annotated[Path, typer.Argument(help="CSV file of published measurements.")],
    by: Annotated[
        KeyChoice, typer.Option(help="Column by which rows are grouped.")
    ] = KeyChoice.SOURCE,
    leave: Annotated[
        LeaveChoice,
        typer.Option(help="Rows with the same value are excluded from the calibration."),
    ] = LeaveChoice.SOURCE,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
    html_file: Annotated[
        Path | None, typer.Option("--html", callback=writable, help="File for a page with charts.")
    ] = None,
) -> None:
    """Forecast published measurements and report the errors."""
    from slipstream.forecast.search import intervals
    from slipstream.forecast.validate import display, folds
    from slipstream.forecast.validate.score import validate

    if html_file is not None:
        from slipstream.forecast.report import validation_page as validation_page  # if installed
    known = intervals.load()
    with Progress(console=stderr_console(), transient=True) as bar:
        task = bar.add_task("rows", total=None)
        report = validate(
            table,
            folds.load(),
            leave.value,
            lambda done, of: bar.update(task, completed=done, total=of),
        )
    if html_file is not None:
        _write_page(report, known, table.name, html_file)
    if as_json:
        print(json.dumps(display.as_json(report, known), indent=1))
        return
    console = make_console(sys.stdout)
    console.print(display.score_table(report, by.value))
    if report.footprints:
        console.print(display.memory_table(report))
    console.print(display.worst_table(report))
    for line in display.notes(report, known):
        console.print(line, markup=False)


def _write_page(report: ValidationReport, known: Intervals, name: str, file: Path) -> None:
    from slipstream.forecast.report import validation_page

    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(validation_page(report, known, name), encoding="utf-8")
