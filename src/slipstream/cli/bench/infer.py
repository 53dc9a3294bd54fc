"""`slipstream bench infer`: latency of models by every engine and precision, ours beside peers'."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.bench.show import show, telling, write
from slipstream.cli.files import writable
from slipstream.errors import UnsupportedError, UsageError
from slipstream.lab.display import make_console

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream bench infer                                   all eight models, on one core
  slipstream bench infer --search 120 --unseen 1000        does it keep its promise?
  slipstream bench infer resnet50 mobilenetv3_large --cache build/infer
  slipstream bench infer bert_base --threads 2 --peer openvino-int8 --peer ort-int8-dynamic
  slipstream bench infer my_models:TINY --json tiny.json
  slipstream bench infer a.slip b.slip --pictures build/fashion-mnist --accuracy 92,99 --price 0.10

\b
Models:  resnet50, resnet26d, vit_small, mobilenetv3_large, efficientnet_b0, bert_base, detector,
         stylegan; or package.module:attribute, a slipstream.bench.zoo.ZooModel
Peers:   pytorch, inductor (not by default), ort, ort-int8, ort-int8-dynamic, openvino,
         openvino-bf16, openvino-int8-weights, openvino-int8, openvino-int8-bf16
"""
OF_TABLES = ("peer", "rounds", "seconds", "search", "unseen", "cache")
OF_PICTURES = ("accuracy", "price")
PACKAGES = ("torch", "onnx", "onnxruntime", "openvino", "pydantic")


def add_to(app: typer.Typer) -> None:
    """Make this a sub-command of `app`."""
    app.command("infer", epilog=EXAMPLES)(infer_models)


def infer_models(
    context: typer.Context,
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Models; default: all. With --pictures: compiled packages."),
    ] = None,
    peer: Annotated[
        list[str] | None, typer.Option(help="Peer; repeat it for several. Default: all fast ones.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Threads and cores of each contender; default: 1, with --pictures as compiled.",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(help="Rounds; in each, every contender has one turn.")
    ] = 20,
    seconds: Annotated[float, typer.Option(help="Seconds of a turn.")] = 0.2,
    search: Annotated[
        float, typer.Option(help="Seconds that each of our two compilations of a model may take.")
    ] = 60.0,
    unseen: Annotated[
        int,
        typer.Option(min=0, help="Unseen inputs on which our accuracy is checked."),
    ] = 0,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps the peers' files for the next time."),
    ] = None,
    pictures: Annotated[
        Path | None,
        typer.Option(help="Folder of JPEG files by label; measures time and cost per image."),
    ] = None,
    accuracy: Annotated[
        str, typer.Option(help="Least top-1 [top-5] in percent, with --pictures.")
    ] = "0,0",
    price: Annotated[
        float, typer.Option(help="Price of an hour of this machine in $, with --pictures.")
    ] = (0.0),
    json_file: Annotated[
        Path | None,
        typer.Option("--json", callback=writable, help="File for all measurements as JSON."),
    ] = None,
) -> None:
    """Measure models by every engine and precision: latency, accuracy, memory, share of the peak.

    Needs PyTorch and slipstream\\[infer]; with nncf, OpenVINO's int8 takes part. With --pictures,
    average time and cost of an image from its JPEG file to the answer. Nothing else should run on
    the machine.
    """
    _check_effect(context, pictures is not None)
    if pictures is not None:
        least = parse_accuracy(accuracy)
        packages = tuple(Path(model) for model in models or ())
        _costs(packages, pictures, least, price, threads, json_file)
        return
    _check_packages()
    from slipstream.bench.infer.measure import InferSpec, measure
    from slipstream.bench.infer.table import as_json, caption, tables

    chosen = {"models": tuple(models)} if models else {}
    spec = InferSpec(
        **chosen,
        peers=tuple(peer or ()),
        threads=threads or 1,
        rounds=rounds,
        seconds=seconds,
        search_seconds=search,
        unseen=unseen,
        cache=cache,
    )
    with telling("the first model is made ready") as tell:
        report = measure(spec, tell)
    show(report.notes, tables(report), caption(report), json_file, as_json(report))


def parse_accuracy(text: str) -> tuple[float, float]:
    """Return the shares of top-1 and top-5 that percentages such as "92" or "92%,99%" mean.

    Raises:
        UsageError: The text is anything else.
    """
    parts = [part.strip().removesuffix("%") for part in text.split(",")]
    try:
        numbers = [float(part) / 100 for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise UsageError(f"the accuracy is {text!r}; allowed: percentages such as 92 or 92,99")
    return numbers[0], (numbers[1] if len(numbers) > 1 else 0.0)


def _check_effect(context: typer.Context, has_pictures: bool) -> None:
    """UsageError for options that were given and would change nothing."""
    idle = OF_TABLES if has_pictures else OF_PICTURES
    for name in idle:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            other = "with" if has_pictures else "without"
            raise UsageError(f"--{name} has no effect {other} --pictures: leave it out")


def _costs(
    packages: tuple[Path, ...],
    folder: Path,
    least: tuple[float, float],
    price: float,
    threads: int | None,
    json_file: Path | None,
) -> None:
    from slipstream.bench.infer.cost import CostSpec, cost_as_json, cost_table, measure_cost

    top1, top5 = least
    spec = CostSpec(
        packages=packages, folder=folder, top1=top1, top5=top5, price=price, threads=threads
    )
    with telling("models are loaded") as tell:
        costs = measure_cost(spec, tell)
    make_console(sys.stdout).print(cost_table(spec, costs))
    write(json_file, cost_as_json(spec, costs))
    if not all(cost.is_accurate(spec) for cost in costs):
        raise typer.Exit(1)


def _check_packages() -> None:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UnsupportedError(
            f"this benchmark needs {', '.join(missing)}, which is not installed:"
            " pip install 'slipstream[torch,infer]'"
        )
