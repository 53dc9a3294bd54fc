"""`slipstream bench pictures`: from JPEG files to labels, ours beside peers' pipelines."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.bench.show import show, telling
from slipstream.cli.files import writable
from slipstream.errors import UnsupportedError

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream bench pictures                                ResNet-50 and MobileNetV3
  slipstream bench pictures mobilenetv3_large --cache build/infer --json pictures.json
  slipstream bench pictures resnet50 --task stream

\b
Models:  resnet50, mobilenetv3_large, resnet26d, efficientnet_b0, vit_small
Tasks:   latency of one picture on one core, stream of pictures on two
"""
PACKAGES = ("torch", "onnx", "onnxruntime", "openvino", "nncf", "PIL", "pydantic")


def add_to(app: typer.Typer) -> None:
    """Make this a sub-command of `app`."""
    app.command("pictures", epilog=EXAMPLES)(bench_pictures)


def bench_pictures(
    models: Annotated[list[str] | None, typer.Argument(help="Models; default: two.")] = None,
    task: Annotated[
        list[str] | None, typer.Option(help="Measure: latency or stream; default: both.")
    ] = None,
    rounds: Annotated[
        int, typer.Option(help="Rounds; in each, every contender has one turn.")
    ] = 10,
    seconds: Annotated[float, typer.Option(help="Seconds of a turn.")] = 1.0,
    search: Annotated[
        float, typer.Option(help="Seconds that our compilation of a model may take.")
    ] = 60.0,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps the peers' files for the next time."),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", callback=writable, help="File for all measurements as JSON."),
    ] = None,
) -> None:
    """Measure the way from JPEG files to labels, decoding and resizing included.

    Peers are Pillow, NumPy and the int8 of ONNX Runtime and OpenVINO. Needs PyTorch,
    slipstream\\[infer] and nncf. Nothing else should run on the machine.
    """
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UnsupportedError(
            f"this benchmark needs {', '.join(missing)}, which is not installed:"
            " pip install 'slipstream[torch,infer]' nncf"
        )
    from slipstream.bench.images.measure import MODELS, PicturesSpec, Task, measure
    from slipstream.bench.images.table import as_json, caption, tables

    tasks: tuple[Task, ...] = tuple(task) if task else ("latency", "stream")  # pyright: ignore[reportAssignmentType]
    spec = PicturesSpec(
        models=tuple(models or MODELS),
        tasks=tasks,
        rounds=rounds,
        seconds=seconds,
        search_seconds=search,
        cache=cache,
    )
    with telling("the first model is made ready") as tell:
        report = measure(spec, tell)
    show(report.notes, tables(report), caption(report), json_file, as_json(report))
