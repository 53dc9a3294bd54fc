"""`slipstream bench infer`: latency of models by every engine and precision, ours beside peers'."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.bench_show import telling, write
from slipstream.errors import UnsupportedError
from slipstream.lab.display import make_console, stderr_console

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream bench infer                                   all eight models, on one core
  slipstream bench infer resnet50 mobilenetv3_large --cache build/infer
  slipstream bench infer bert_base --threads 2 --peer openvino-int8 --peer ort-int8-dynamic
  slipstream bench infer my_models:TINY --json tiny.json

\b
Models:  resnet50, resnet26d, vit_small, mobilenetv3_large, efficientnet_b0, bert_base, detector,
         stylegan; or package.module:attribute, a slipstream.bench.zoo.ZooModel
Peers:   pytorch, inductor (not by default), ort, ort-int8, ort-int8-dynamic, openvino,
         openvino-bf16, openvino-int8-weights, openvino-int8, openvino-int8-bf16
"""
PACKAGES = ("torch", "onnx", "onnxruntime", "openvino", "pydantic")


def add_to(app: typer.Typer) -> None:
    """Make this a sub-command of `app`."""
    app.command("infer", epilog=EXAMPLES)(infer_models)


def infer_models(
    models: Annotated[list[str] | None, typer.Argument(help="Models; default: all.")] = None,
    peer: Annotated[
        list[str] | None, typer.Option(help="Peer; more than once. Default: all that are quick.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Of each contender, and as many cores.")] = 1,
    rounds: Annotated[int, typer.Option(help="In each, every contender has its turn.")] = 20,
    seconds: Annotated[float, typer.Option(help="Of a turn.")] = 0.2,
    search: Annotated[
        float, typer.Option(help="Seconds that each of our two compilations of a model may take.")
    ] = 60.0,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder where the peers' files stay, for the next time."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="File for all that was measured.")
    ] = None,
) -> None:
    """Measure models by every engine and precision: latency, accuracy, memory, share of the peak.

    Needs PyTorch and slipstream\\[infer]; with nncf, OpenVINO's int8 takes part. Nothing else
    should run on the machine.
    """
    _check_packages()
    from slipstream.bench.infer import InferSpec, measure
    from slipstream.bench.infer_table import as_json, caption, tables

    chosen = {"models": tuple(models)} if models else {}
    spec = InferSpec(
        **chosen,
        peers=tuple(peer or ()),
        threads=threads,
        rounds=rounds,
        seconds=seconds,
        search_seconds=search,
        cache=cache,
    )
    with telling("the first model is made ready") as tell:
        report = measure(spec, tell)
    for note in report.notes:
        stderr_console().print(note, style="dim", markup=False)
    for table in tables(report):
        make_console(sys.stdout).print(table)
    make_console(sys.stdout).print(caption(report), style="dim", highlight=False)
    write(json_file, as_json(report))


def _check_packages() -> None:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UnsupportedError(
            f"this benchmark needs {', '.join(missing)}, which is not installed:"
            " pip install 'slipstream[torch,infer]'"
        )
