"""`slipstream bench images`: time from JPEG files to labels, compared with other pipelines."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.options import (
    AsJson,
    CacheFolder,
    OutputFile,
    Rounds,
    SearchTime,
    TurnTime,
    split_list,
)
from slipstream.cli.output import caption_text, emit
from slipstream.cli.progress import status_line
from slipstream.errors import UnsupportedError
from slipstream.units import parse_duration

if TYPE_CHECKING:
    from slipstream.bench.images.measure import Task

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream bench images                                ResNet-50 and MobileNetV3
  slipstream bench images mobilenetv3_large --cache build/infer -o images.json
  slipstream bench images resnet50 --tasks stream

Models: resnet50, mobilenetv3_large, resnet26d, efficientnet_b0, vit_small.

Tasks: latency of one image on one core, stream of images on two.
"""
PACKAGES = ("torch", "onnx", "onnxruntime", "openvino", "nncf", "PIL", "pydantic")


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("images", epilog=EXAMPLES)(bench_images)


def bench_images(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL...",
            show_default="resnet50 and mobilenetv3_large",
            help="Models to measure.",
        ),
    ] = None,
    tasks: Annotated[
        str, typer.Option(metavar="LIST", help="Tasks to measure, separated by commas.")
    ] = "latency,stream",
    rounds: Rounds = 10,
    turn_time: TurnTime = "1s",
    search_time: SearchTime = "60s",
    cache: CacheFolder = None,
    output: OutputFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure the time from JPEG files to labels, including decoding and resizing.

    The competing pipelines read images with Pillow and NumPy, and run int8 models with ONNX Runtime
    or OpenVINO. The command needs PyTorch, slipstream[infer] and nncf. Nothing else should run on
    the machine.
    """
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UnsupportedError(
            f"this benchmark needs {', '.join(missing)}, which is not installed:"
            " pip install 'slipstream[torch,infer]' nncf"
        )
    from slipstream.bench.images import table
    from slipstream.bench.images.measure import MODELS, ImagesSpec, measure

    chosen: tuple[Task, ...] = split_list(tasks)  # pyright: ignore[reportAssignmentType]
    spec = ImagesSpec(
        models=tuple(models or MODELS),
        tasks=chosen,
        rounds=rounds,
        seconds=parse_duration(turn_time, "turn time", bare_seconds=True),
        search_seconds=parse_duration(search_time, "search time", bare_seconds=True),
        cache=cache,
    )
    with status_line("the first model is made ready") as tell:
        report = measure(spec, tell)
    shown = [*table.tables(report), caption_text(table.caption(report))]
    emit(table.as_json(report), shown, as_json=as_json, output=output, notes=report.notes)
