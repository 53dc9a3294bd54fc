"""The command python -m slipstream.bench.pretrained, which prints a table of the models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from slipstream.bench.environment import environment, environment_line
from slipstream.bench.pretrained.measure import OPENVINO, ORT, OURS, PretrainedRow, measure
from slipstream.bench.pretrained.zoo import PRETRAINED, chosen
from slipstream.errors import SlipstreamError

COLUMNS = ("Slipstream", "ORT fp32", "OpenVINO fp32", "best peer / ours", "original", "compiled")


def table(rows: list[PretrainedRow]) -> Table:
    """Return a table with the accuracy of each model and the milliseconds for one sample."""
    result = Table(title=environment_line(), title_justify="left")
    result.add_column("model", no_wrap=True)
    result.add_column("chosen")
    for name in COLUMNS:
        result.add_column(name, justify="right")
    for row in rows:
        result.add_row(*cells(row))
    return result


def cells(row: PretrainedRow) -> list[str]:
    """Return the cells of the table's row for one model."""
    times = [row.milliseconds.get(name) for name in (OURS, ORT, OPENVINO)]
    return [
        row.model.title,
        row.report.chosen.title,
        *("-" if time is None else f"{time:.3g}" for time in times),
        f"{row.ratio:.2f}",
        f"{row.original:.2%}",
        f"{row.compiled:.2%}",
    ]


def as_json(row: PretrainedRow) -> dict[str, Any]:
    """Return the results of one model as a JSON-compatible dictionary."""
    return {
        "model": row.model.name,
        "package": row.model.package,
        "chosen": row.report.chosen.title,
        "snr_db": row.report.chosen.snr_db,
        "original": row.original,
        "compiled": row.compiled,
        "milliseconds": dict(row.milliseconds),
        "troubles": dict(row.troubles),
    }


def main(
    models: Annotated[
        list[str] | None, typer.Argument(help=f"Models: {', '.join(PRETRAINED)}; default all.")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--time", help="Seconds to search the fastest variant of each model.")
    ] = 60.0,
    threads: Annotated[int, typer.Option(help="Number of threads that run a model.")] = 1,
    short: Annotated[bool, typer.Option("--short", help="Use fewer inputs and rounds.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File for the measurements as JSON.")
    ] = None,
) -> None:
    """Compile models with trained weights, measure their accuracy on real inputs, and time them."""
    console = Console()
    rows: list[PretrainedRow] = []
    try:
        for model in chosen(models or []):
            with console.status(f"{model.title} of {model.package}"):
                rows.append(measure(model, seconds=seconds, threads=threads, is_short=short))
            console.print(f"{model.title}: {model.measure}", style="bold", highlight=False)
            console.print(f"  {rows[-1].report.choice}", highlight=False)
            for engine, trouble in rows[-1].troubles.items():
                console.print(f"  {engine} cannot run it: {trouble}", highlight=False)
    except SlipstreamError as error:
        console.print(f"error: {error}", style="red", markup=False)
        raise typer.Exit(1) from error
    console.print(table(rows))
    if output is not None:
        content = {"environment": environment(), "rows": [as_json(row) for row in rows]}
        output.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
