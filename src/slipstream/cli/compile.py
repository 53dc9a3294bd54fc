"""`slipstream compile`: a model to the fastest form on this machine that is accurate enough."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from slipstream import infer
from slipstream.cli.files import writable
from slipstream.cli.output import make_console, stderr_console
from slipstream.errors import UsageError
from slipstream.units import parse_duration

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream compile model.onnx -o model.slip
  slipstream compile model.onnx -o model.slip --data images/ --budget 0.3%
  slipstream compile package.module:make -o model.slip --shape image=1,3,224,224
  slipstream compile model.onnx -o model.slip --data package.module:loader --snr 30
  slipstream compile model.onnx -o model.slip --target throughput --threads 4 --time 10m
  slipstream compile model.onnx -o model.slip --data images/ --pixels --top 5
  slipstream compile --list

\b
MODEL is an ONNX file, a .pt2 file of torch.export, a .keras or .h5 file, a SavedModel folder, or
the factory of a PyTorch module, Keras model, tf.function or JAX function:
package.module:function, which returns it or (it, its example inputs).
Of Caffe it is net.prototxt, of MXNet net-symbol.json, with net.caffemodel or net-0000.params
beside it or named by --weights; of Kaldi final.mdl, with --shape input=1,FRAMES,DIM.
Without --data there is no int8: it stays in floating point.
Load the result with slipstream.infer.load("model.slip").
[bold]Exit code[/bold]: 1 where no candidate keeps to the budget, 2 for wrong usage.
"""
DATA = "Folder of images, .npy or .npz files; an .npz file; package.module:loader."
BOXES = "iou=0.45,score=0.25,most=100,layout=yolov8, or fewer of them"
NORMALISED = "One number, or one per channel; default ImageNet's."


Budget = Annotated[str, typer.Option(help="Top-1 points that may be lost, if the data has labels.")]
Snr = Annotated[
    float | None,
    typer.Option(help="Least signal to noise in dB; default 20 without labels."),
]
Agreement = Annotated[
    str, typer.Option(help="Least share of answers that stay the same, without labels.")
]


class TargetChoice(str, Enum):
    """What is to be least."""

    LATENCY = "latency"
    THROUGHPUT = "throughput"
    MEMORY = "memory"


def add_to(app: typer.Typer) -> None:
    """Make this a sub-command of `app`."""
    app.command("compile", epilog=EXAMPLES)(compile_model)


def show_list(wanted: bool) -> None:
    """Print engines and rewrites, and end, where that is wanted."""
    if not wanted:
        return
    _ = infer.compile  # says what is not installed
    from slipstream.infer.engines import ENGINES
    from slipstream.infer.rewrites import REWRITES

    console = make_console(sys.stdout)
    console.print("engines (--engine)", style="bold")
    for engine in ENGINES.values():
        reason = engine.available()
        console.print(f"  {engine.name:18}{reason or ', '.join(engine.precisions())}", markup=False)
    console.print("rewrites (--without)", style="bold")
    for rewrite in REWRITES:
        console.print(f"  {rewrite.name:20}{rewrite.what}", markup=False)
    raise typer.Exit


# over budget: a parameter for each option of the command
def compile_model(
    model: Annotated[
        str, typer.Argument(help="File, SavedModel folder, or package.module:factory.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write.")] = Path(
        "model.slip"
    ),
    data: Annotated[str | None, typer.Option(help=DATA)] = None,
    budget: Budget = "0.3%",
    snr: Snr = None,
    agreement: Agreement = "95%",
    target: Annotated[
        TargetChoice, typer.Option(help="Measure by which the fastest is chosen.")
    ] = (TargetChoice.LATENCY),
    time: Annotated[str, typer.Option(help="Time of the search: 90s, 5m, 1h.")] = "5m",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of a call; default: all cores.")
    ] = None,
    engine: Annotated[
        list[str] | None, typer.Option(help="Engine to try; repeat it for several. Default: all.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="Rewrite to skip; repeat it for several.")
    ] = None,
    shape: Annotated[
        list[str] | None, typer.Option(help="Shape of an input that is open: NAME=1,3,224,224.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="File of the weights; default: the one beside MODEL.")
    ] = None,
    pixels: Annotated[
        bool,
        typer.Option("--pixels", help="Let the package take JPEG, PNG and bytes (n, h, w, c)."),
    ] = False,
    top: Annotated[
        int | None, typer.Option(min=1, help="Labels and scores in an answer, highest first.")
    ] = None,
    boxes: Annotated[
        str | None, typer.Option(help=f"Let the package answer with distinct boxes: {BOXES}.")
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Images: pixels of the shorter side before the crop.")
    ] = None,
    mean: Annotated[str | None, typer.Option(help=f"Images: {NORMALISED}")] = None,
    std: Annotated[str | None, typer.Option(help=f"Images: {NORMALISED}")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", callback=writable, help="File for the report.")
    ] = None,
    list_: Annotated[
        bool,
        typer.Option(
            "--list",
            is_eager=True,
            callback=show_list,
            help="Print the engines and rewrites, and exit.",
        ),
    ] = False,
) -> None:
    """Compile a model: every engine and precision is tried, the fastest that is right wins."""
    del list_
    compiling = infer.compile  # first: it says what is not installed
    from slipstream.infer.importers.shapes import parse_shape
    from slipstream.infer.machine import usable_cores

    begin, seconds = monotonic(), parse_duration(time, "time", bare_seconds=True)
    with _progress() as tell:
        options = infer.CompileOptions(
            shapes=dict(parse_shape(text) for text in shape or ()),
            weights=weights,
            data=data,
            images=_images(size, mean, std),
            pixels=pixels,
            top=top,
            boxes=None if boxes is None else parse_boxes(boxes),
            budget=parse_points(budget),
            snr_db=snr,
            agreement=parse_points(agreement, "the agreement"),
            target=target.value,
            seconds=seconds,
            threads=usable_cores() if threads is None else threads,
            engines=tuple(engine or ()),
            without=tuple(without or ()),
        )
        report = compiling(model, output, options, tell)
    _show(report, output, json_file)
    _warn(report, seconds, monotonic() - begin)


def _warn(report: infer.Report, seconds: float, took: float) -> None:
    """Say which parts took the time of a compilation that took longer than it was allowed."""
    searched = report.search_seconds or 0.0
    if took <= seconds:
        return
    stderr_console().print(
        f"warning: it took {took:.1f} s, and the search is limited to {seconds:g} s: the model was"
        f" read for {report.seconds - searched:.1f} s, the search took {searched:.1f} s, the"
        f" package was written and loaded for {took - report.seconds:.1f} s",
        markup=False,
    )


def _show(report: infer.Report, output: Path, json_file: Path | None) -> None:
    from slipstream.infer.package.report import candidates_table, summary

    console = make_console(sys.stdout)
    console.print(candidates_table(report))
    console.print(summary(report))
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(report.model_dump_json(indent=1) + "\n")
    stderr_console().print(f"{output}: {output.stat().st_size / 1e6:.1f} MB", markup=False)


def parse_points(text: str, what: str = "the budget") -> float:
    """Return the percentage points of `0.3%` or `0.3`; UsageError for other texts."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%?", text.strip())
    if found is None:
        raise UsageError(f"{what} is {text!r}; allowed: percentage points such as 0.3%")
    return float(found[1])


def parse_boxes(text: str) -> infer.BoxOptions:
    """`iou=0.45,score=0.25,most=100,layout=yolov8` or some of it; UsageError for anything else."""
    kinds = {"iou": float, "score": float, "most": int, "layout": str}
    try:
        pairs = [part.strip().split("=") for part in text.split(",") if part.strip()]
        return infer.BoxOptions(**{name: kinds[name](number) for name, number in pairs})  # pyright: ignore[reportArgumentType]
    except (ValueError, KeyError) as error:
        raise UsageError(f"--boxes is {text!r}; allowed: {BOXES}") from error


def _images(size: int | None, mean: str | None, std: str | None) -> infer.ImageOptions:
    default = infer.ImageOptions()
    return infer.ImageOptions(
        size=size,
        mean=default.mean if mean is None else _numbers("--mean", mean),
        std=default.std if std is None else _numbers("--std", std),
    )


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"{option} is {text!r}; allowed: 0.5 or 0.485,0.456,0.406") from error


@contextmanager
def _progress() -> Generator[Callable[[str, float], None]]:
    """Yield what shows, on a terminal, what is done and how much of the time has passed."""
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
