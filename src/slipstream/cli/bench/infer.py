"""`slipstream bench infer`: latency of models, compared with other inference engines."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from slipstream.cli.options import (
    AsJson,
    CacheFolder,
    OutputFile,
    Rounds,
    SearchTime,
    TurnTime,
    peers_option,
    split_list,
    split_peers,
)
from slipstream.cli.output import caption_text, emit
from slipstream.cli.progress import status_line
from slipstream.errors import UnsupportedError, UsageError
from slipstream.units import parse_duration

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream bench infer                                   all eight models, on one core
  slipstream bench infer --search-time 2m --unseen 1000    accuracy on unseen inputs
  slipstream bench infer resnet50 mobilenetv3_large --cache build/infer
  slipstream bench infer bert_base --threads 2 --peers openvino-int8,ort-int8-dynamic
  slipstream bench infer my_models.py:TINY -o tiny.json
  slipstream bench infer --device cuda --batch 1,32        on a GPU, in fp16
  slipstream bench infer a.slip b.slip --images build/fashion-mnist --accuracy 92,99 --price 0.10

Models: resnet50, resnet26d, vit_small, mobilenetv3_large, efficientnet_b0, bert_base, detector,
stylegan; or package.module:name or path.py:name of a slipstream.bench.zoo.ZooModel.

Peers: pytorch, inductor (not by default), ort, ort-int8, ort-int8-dynamic, openvino,
openvino-bf16, openvino-int8-weights, openvino-int8, openvino-int8-bf16. With --device cuda: eager,
compile, compile-graphs, compile-autotune, ort-cuda, tensorrt.

[bold]Exit code[/bold]: 1 if a peer failed or a package has less accuracy than --accuracy, 2 for
wrong usage.
"""
# Options that have no effect with --images, and options that have no effect without --images.
LATENCY_OPTIONS = ("peers", "rounds", "turn_time", "search_time", "unseen", "cache")
IMAGE_OPTIONS = ("accuracy", "price")
CARD_OPTIONS = ("batch", "precision")  # options that have no effect without a GPU
CPU_OPTIONS = ("threads", "unseen", "search_time", "cache", "images", *IMAGE_OPTIONS)
COST = "Time and cost of an image"
CARD = "Latency on a GPU"
PACKAGES = ("torch", "onnx", "onnxruntime", "openvino", "pydantic")


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("infer", epilog=EXAMPLES)(infer_models)


# over budget: a parameter for each option of the command
def infer_models(
    context: typer.Context,
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL...",
            show_default="all eight",
            help="Models to measure; with --images, compiled packages.",
        ),
    ] = None,
    peers: Annotated[str | None, peers_option(show_default="all but inductor")] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="1, or as compiled with --images",
            help="Number of threads, and of cores, with which each engine runs.",
        ),
    ] = None,
    unseen: Annotated[
        int,
        typer.Option(
            min=0, help="Number of unseen inputs on which Slipstream's accuracy is checked."
        ),
    ] = 0,
    rounds: Rounds = 20,
    turn_time: TurnTime = "200ms",
    search_time: SearchTime = "60s",
    cache: CacheFolder = None,
    device: Annotated[
        str,
        typer.Option(
            metavar="DEVICE",
            rich_help_panel=CARD,
            help="Device: cpu, cuda, or cuda:1 and so on. The benchmark was never run on a GPU.",
        ),
    ] = "cpu",
    batch: Annotated[
        str,
        typer.Option(metavar="LIST", rich_help_panel=CARD, help="Numbers of rows of a call."),
    ] = "1,32",
    precision: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=CARD,
            help="Precision of all contenders: fp32, tf32, bf16 or fp16.",
        ),
    ] = "fp16",
    images: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            rich_help_panel=COST,
            help="Folder with a subfolder of JPEG files per label, to measure cost per image.",
        ),
    ] = None,
    accuracy: Annotated[
        str,
        typer.Option(
            metavar="TOP1[,TOP5]", rich_help_panel=COST, help="Required accuracy in percent."
        ),
    ] = "0,0",
    price: Annotated[
        float,
        typer.Option(
            metavar="DOLLARS", rich_help_panel=COST, help="Price of an hour of this machine."
        ),
    ] = 0.0,
    output: OutputFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure latency, accuracy, memory and share of peak speed, by engine and precision.

    The command needs PyTorch and slipstream[infer]; with nncf, it measures OpenVINO's int8 too.
    With --images, the command measures the average time and cost per image, from JPEG file to
    predicted classes. Nothing else should run on the machine.
    """
    if device != "cpu":
        _refuse(context, CPU_OPTIONS, f"with --device {device}")
        spec = {"peers": None if peers is None else split_peers(peers), "rounds": rounds}
        spec |= {"models": tuple(models) if models else None, "batches": parse_batches(batch)}
        spec |= {"seconds": parse_duration(turn_time, "turn time", bare_seconds=True)}
        _on_card(spec | {"device": device, "precision": precision}, output, as_json=as_json)
        return
    _refuse(context, CARD_OPTIONS, "without --device cuda")
    _check_effect(context, images is not None)
    if images is not None:
        packages = tuple(Path(model) for model in models or ())
        top1, top5 = parse_accuracy(accuracy)
        _costs(
            {"packages": packages, "folder": images, "top1": top1, "top5": top5}
            | {"price": price, "threads": threads},
            output,
            as_json,
        )
        return
    _check_packages()
    from slipstream.bench.infer import table
    from slipstream.bench.infer.measure import InferSpec, measure

    chosen = {"models": tuple(models)} if models else {}
    spec = InferSpec(
        **chosen,
        peers=None if peers is None else split_peers(peers),
        threads=threads or 1,
        rounds=rounds,
        seconds=parse_duration(turn_time, "turn time", bare_seconds=True),
        search_seconds=parse_duration(search_time, "search time", bare_seconds=True),
        unseen=unseen,
        cache=cache,
    )
    with status_line("the first model is made ready") as tell:
        report = measure(spec, tell)
    shown = [*table.tables(report), caption_text(table.caption(report))]
    emit(table.as_json(report), shown, as_json=as_json, output=output, notes=report.notes)
    if report.failures:
        raise typer.Exit(1)


def parse_accuracy(text: str) -> tuple[float, float]:
    """Return top-1 and top-5 accuracy, each 0 to 1, from percentages: "92" or "92%,99%".

    Raises:
        UsageError: The text is not one or two percentages.
    """
    parts = [part.removesuffix("%") for part in split_list(text)]
    try:
        numbers = [float(part) / 100 for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise UsageError(f"the accuracy is {text!r}; allowed: percentages such as 92 or 92,99")
    return numbers[0], (numbers[1] if len(numbers) > 1 else 0.0)


def _check_effect(context: typer.Context, has_images: bool) -> None:
    """Raise UsageError if an option on the command line would have no effect."""
    names = LATENCY_OPTIONS if has_images else IMAGE_OPTIONS
    _refuse(context, names, "with --images" if has_images else "without --images")


def _refuse(context: typer.Context, names: Sequence[str], case: str) -> None:
    """Raise UsageError if one of some options is on the command line."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = name.replace("_", "-")
            raise UsageError(f"--{option} has no effect {case}: leave it out")


def parse_batches(text: str) -> tuple[int, ...]:
    """Return the numbers in `1,32`; raise UsageError for other texts."""
    parts = split_list(text)
    if not parts or not all(part.isdecimal() and int(part) for part in parts):
        raise UsageError(f"the batch is {text!r}; allowed: numbers from 1, such as 1,32")
    return tuple(map(int, parts))


def _on_card(settings: dict[str, Any], output: Path | None, *, as_json: bool) -> None:
    """Measure on a GPU; settings that are None have the defaults of `CardSpec`."""
    _check_packages(("torch", "onnx", "onnxruntime", "pydantic"))
    from slipstream.bench.infer.card import CardSpec, measure_on_card
    from slipstream.bench.infer.card_table import card_as_json, card_tables

    given = {name: value for name, value in settings.items() if value is not None}
    with status_line("the first model is made ready") as tell:
        report = measure_on_card(CardSpec(**given), tell)
    notes = [note for result in report.results for note in result.notes]
    emit(card_as_json(report), card_tables(report), as_json=as_json, output=output, notes=notes)
    if any(result.failures for result in report.results):
        raise typer.Exit(1)


def _costs(settings: dict[str, Any], output: Path | None, as_json: bool) -> None:
    from slipstream.bench.infer.cost import CostSpec, cost_as_json, cost_table, measure_cost

    spec = CostSpec(**settings)
    with status_line("models are loaded") as tell:
        costs = measure_cost(spec, tell)
    emit(cost_as_json(spec, costs), [cost_table(spec, costs)], as_json=as_json, output=output)
    if not all(cost.is_accurate(spec) for cost in costs):
        raise typer.Exit(1)


def _check_packages(packages: Sequence[str] = PACKAGES) -> None:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise UnsupportedError(
            f"this benchmark needs {', '.join(missing)}, which is not installed:"
            " pip install 'slipstream[torch,infer]'"
        )
