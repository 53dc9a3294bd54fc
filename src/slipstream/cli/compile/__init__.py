"""`slipstream compile`: find the fastest form of a model that is accurate enough."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from slipstream import infer
from slipstream.cli.compile.options import (
    Agreement,
    Boxes,
    Budget,
    Data,
    Device,
    Engines,
    Mean,
    Pixels,
    Shapes,
    Size,
    Snr,
    Std,
    TargetChoice,
    Top,
    Weights,
    Without,
    parse_boxes,
    parse_images,
    parse_percent,
)
from slipstream.cli.options import OUTPUT, AsJson, file_option, split_list
from slipstream.cli.output import emit, remark, stderr_console
from slipstream.errors import UsageError
from slipstream.units import format_bytes, parse_duration

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream compile model.onnx -o model.slip
  slipstream compile model.onnx -o model.slip --data images/ --budget 0.3%
  slipstream compile package.module:make -o model.slip --shape image=1,3,224,224
  slipstream compile model.onnx -o model.slip --data package.module:loader --snr 30
  slipstream compile model.onnx -o model.slip --target throughput --threads 4 --search-time 10m
  slipstream compile model.onnx -o model.slip --data images/ --pixels --top 5
  slipstream compile model.onnx -o model.slip --device cuda
  slipstream compile model.onnx -o model.slip --json > report.json
  slipstream compile --list

MODEL is a file: ONNX, .pt2 of torch.export, .keras, .h5, a SavedModel folder, net.prototxt of
Caffe, net-symbol.json of MXNet, or final.mdl of Kaldi (with --shape input=1,FRAMES,DIM). Or it is
package.module:function or path.py:function, which returns a PyTorch module, a Keras model, a
tf.function or a JAX function, alone or with its example inputs as a pair.

Without --data the model is not converted to int8: it stays in floating point.

The package is loaded by slipstream.infer.load("model.slip") and by slipstream serve.

[bold]Exit code[/bold]: 1 if no candidate is accurate enough, 2 for wrong usage.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("compile", epilog=EXAMPLES)(compile_model)


def show_list(*, as_json: bool) -> None:
    """Print the inference engines and the graph rewrites."""
    _ = infer.compile  # raises an error at once if a package is not installed
    from slipstream.infer.engines import ENGINES
    from slipstream.infer.rewrites import REWRITES

    reasons = {name: engine.available() or "" for name, engine in ENGINES.items()}
    engines = [
        {"name": name, "precisions": list(engine.precisions()), "unavailable": reasons[name]}
        for name, engine in ENGINES.items()
    ]
    rewrites = [{"name": rewrite.name, "effect": rewrite.effect} for rewrite in REWRITES]
    lines = [
        "engines (--engines)",
        *(
            f"  {item['name']:18}{item['unavailable'] or ', '.join(item['precisions'])}"
            for item in engines
        ),
        "rewrites (--without)",
        *(f"  {item['name']:20}{item['effect']}" for item in rewrites),
    ]
    emit({"engines": engines, "rewrites": rewrites}, lines, as_json=as_json)


# over budget: a parameter for each option of the command
def compile_model(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="Model: file, package.module:function or path.py:function.",
        ),
    ] = None,
    output: Annotated[
        Path, file_option("-o", "--output", help="File for the package.", group=None)
    ] = Path("model.slip"),
    data: Data = None,
    budget: Budget = "0.3%",
    snr: Snr = None,
    agreement: Agreement = "95%",
    target: Annotated[
        TargetChoice, typer.Option(help="Quantity that the search minimises.")
    ] = TargetChoice.LATENCY,
    search_time: Annotated[
        str, typer.Option(metavar="TIME", help="Time limit of the search: 90s, 5m, 1h.")
    ] = "5m",
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, show_default="all cores", help="Number of threads that compute one call."
        ),
    ] = None,
    shapes: Shapes = None,
    weights: Weights = None,
    pixels: Pixels = False,
    top: Top = None,
    boxes: Boxes = None,
    size: Size = None,
    mean: Mean = None,
    std: Std = None,
    device: Device = "auto",
    engines: Engines = "",
    without: Without = "",
    as_json: AsJson = False,
    list_: Annotated[
        bool,
        typer.Option(
            "--list",
            rich_help_panel=OUTPUT,
            help="Print the engines and graph rewrites, and exit.",
        ),
    ] = False,
) -> None:
    """Compile MODEL: try every engine and precision, and keep the fastest accurate result."""
    if list_:
        show_list(as_json=as_json)
        return
    if model is None:
        raise UsageError(
            "MODEL is missing; allowed: a file, package.module:function or path.py:function"
        )
    run_compilation = infer.compile  # raises an error at once if a package is not installed
    from slipstream.infer.importers.shapes import parse_shape
    from slipstream.infer.machine import usable_cores

    begin = monotonic()
    options = infer.CompileOptions(
        shapes=dict(parse_shape(text) for text in shapes or ()),
        weights=weights,
        data=data,
        images=parse_images(size, mean, std),
        pixels=pixels,
        top=top,
        boxes=None if boxes is None else parse_boxes(boxes),
        budget=parse_percent(budget, "the budget"),
        snr_db=snr,
        agreement=parse_percent(agreement, "the agreement"),
        target=target.value,
        seconds=parse_duration(search_time, "search time", bare_seconds=True),
        threads=usable_cores() if threads is None else threads,
        device=device,
        engines=split_list(engines),
        without=split_list(without),
    )
    try:
        with _progress() as tell:
            report = run_compilation(model, output, options, tell)
    except KeyboardInterrupt:
        remark(f"interrupted: the compilation has not ended, and {output} is as before", style="")
        raise
    _show(report, output, as_json=as_json)
    _warn(report, options.seconds, monotonic() - begin)


def _show(report: infer.Report, output: Path, *, as_json: bool) -> None:
    """Print the report, and name the package on stderr."""
    from slipstream.infer.package.report import candidates_table, summary

    shown = [candidates_table(report), summary(report)]
    emit(report.model_dump(mode="json"), shown, as_json=as_json)
    remark(f"written: {output}, {format_bytes(output.stat().st_size)}", style="")


def _warn(report: infer.Report, limit: float, seconds: float) -> None:
    """Warn if the command took longer than the search's limit; give the time of each part."""
    if seconds <= limit:
        return
    search = report.search_seconds or 0.0
    remark(
        f"warning: the command took {seconds:.1f} s, and the search was limited to {limit:g} s:"
        f" reading the model took {report.seconds - search:.1f} s, the search {search:.1f} s,"
        f" writing and loading the package {seconds - report.seconds:.1f} s",
        style="",
    )


@contextmanager
def _progress() -> Generator[Callable[[str, float], None]]:
    """Yield a function that shows the current step and the share of time passed, on a terminal."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        BarColumn(24),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    console = stderr_console()
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda text, share: bar.update(task, description=text, completed=share)
