"""`slipstream forecast validate`: errors of forecasts against published measurements."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.options import AsJson, HtmlFile, OutputFile
from slipstream.cli.output import emit, stderr_console, write_file

if TYPE_CHECKING:
    from slipstream.forecast.search.intervals import Intervals
    from slipstream.forecast.validate.score import ValidationReport

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream forecast validate measurements.csv
  slipstream forecast validate measurements.csv --by device
  slipstream forecast validate measurements.csv --leave model --json
  slipstream forecast validate measurements.csv --html errors.html

The columns are source, model, gpu, gpus_per_node, network_gbps, framework, batch_per_gpu, num_gpus,
images_per_sec_or_speedup, unit and address. Each row is forecast by parameters that were fitted
without its source. A row that cannot be read is listed with the reason. If a row states a peak of
memory ("mem_GiB=71.9" in the model), the forecast of the memory is compared, too. Models are traced
first, which takes some seconds for each.

[bold]Exit code[/bold]: 2 if the table cannot be read.
"""


class LeaveChoice(str, Enum):
    """Measurements that were left out of the fit whose parameters forecast a row of the table.

    They are all measurements of the row's source, those of its source with the same model, or none.
    """

    SOURCE = "source"
    MODEL = "model"
    NONE = "none"


class KeyChoice(str, Enum):
    """Properties by which measurements are grouped in the table of errors."""

    SOURCE = "source"
    MODEL = "model"
    DEVICE = "device"
    SCALE = "scale"
    RUNTIME = "runtime"


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("validate", epilog=EXAMPLES)(validate_table)


def validate_table(
    table: Annotated[
        Path, typer.Argument(metavar="TABLE", help="CSV file of published measurements.")
    ],
    by: Annotated[
        KeyChoice, typer.Option(help="Property by which measurements are grouped.")
    ] = KeyChoice.SOURCE,
    leave: Annotated[
        LeaveChoice,
        typer.Option(
            help="Rows that are left out when the parameters for a row's forecast are fitted: all"
            " rows of its source, those of its source with the same model, or no rows."
        ),
    ] = LeaveChoice.SOURCE,
    as_json: AsJson = False,
    output: OutputFile = None,
    html: HtmlFile = None,
) -> None:
    """Forecast published measurements and report the errors."""
    from rich.progress import Progress

    from slipstream.forecast.search import intervals
    from slipstream.forecast.validate import display, folds
    from slipstream.forecast.validate.score import validate

    if html is not None:
        # This import raises an error at once if a package is not installed.
        from slipstream.forecast.report import validation_page as validation_page
    fitted = intervals.load()
    console = stderr_console()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("rows", total=None)
        report = validate(
            table,
            folds.load(),
            leave.value,
            lambda done, of: bar.update(task, completed=done, total=of),
        )
    shown = [
        display.score_table(report, by.value),
        *([display.memory_table(report)] if report.footprints else []),
        display.worst_table(report),
        *display.notes(report, fitted),
    ]
    emit(display.as_json(report, fitted), shown, as_json=as_json, output=output)
    if html is not None:
        _write_page(report, fitted, table.name, html)


def _write_page(report: ValidationReport, fitted: Intervals, name: str, file: Path) -> None:
    from slipstream.forecast.report import validation_page

    write_file(file, validation_page(report, fitted, name))
