"""`slipstream forecast`: what hardware and which strategy a model takes, how long and how much."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from slipstream import forecast
from slipstream.cli.files import writable
from slipstream.cli.forecast import calibrate as forecast_calibrate
from slipstream.cli.forecast import check as forecast_check
from slipstream.cli.forecast import validate as forecast_validate
from slipstream.cli.forecast.asked import (
    CodecChoice,
    OptimizerChoice,
    PrecisionChoice,
    parse_alone,
    parse_count,
    parse_dollars,
    parse_shape,
    parse_time,
)
from slipstream.cli.forecast.progress import searching
from slipstream.lab.display import make_console

if TYPE_CHECKING:
    from slipstream.forecast import ForecastOptions, Result

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream forecast resnet50 --batch 256
  slipstream forecast resnet50 --batch 2048 --samples 1281167 --epochs 90 --deadline 6h
  slipstream forecast gpt2 --batch 512 --tokens 1024 --gpus A100,H100 --total-tokens 9B
  slipstream forecast llama3-8b --batch 64 --own 8xH100 --hosts 4 --network 400g
  slipstream forecast models.py:make --batch 128 --shape 3,224,224 --clouds aws --spot
  slipstream forecast vit-base-16 --batch 1024 --own 8xA100 --network 100g --alone 410@64
  slipstream forecast model.onnx --batch 64 --most 16 --json plans.json --html plans.html
  slipstream forecast calibrate --out here.toml
  slipstream forecast check resnet18 --batch 16 --hardware here.toml
  slipstream forecast validate table.csv

\b
MODEL is package.module:function or file.py:function, which returns a torch.nn.Module;
an ONNX file; a config.json of Hugging Face; or an architecture: resnet50, vgg16, gpt2,
vit-base-16, bert-large, llama3-8b, dlrm-small, ... (a wrong name lists those near it).
Without --own it looks at what clouds rent out, and what costs least comes first; without
prices, what takes least time. Under a number is the interval in which eight in ten
measurements lie, under the efficiency MFU (model FLOPs utilisation: FLOPs that the model
needs, over the devices' peak) and what limits the plan; tight: memory may not suffice.
[bold]Sub-commands[/bold]: validate, forecasts beside published measurements; calibrate, numbers
of this machine; check, a step of this machine forecast and run; see their --help.
[bold]Exit code[/bold]: 1 where no plan fits, 2 for wrong usage.
"""
PLAN = "plan"

JsonFile = Annotated[
    Path | None,
    typer.Option("--json", callback=writable, help="File for everything; - for standard output."),
]
HtmlFile = Annotated[
    Path | None, typer.Option("--html", callback=writable, help="File for a page with charts.")
]


class _Group(TyperGroup):
    """Sub-commands, or a model: what is no sub-command is said to `plan`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = [PLAN, *(args or ["--help"])]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        # Usage does not have the word that need not be said.
        return ("" if name == PLAN else name), command, rest


def add_to(app: typer.Typer) -> None:
    """Make this a sub-command of `app`, with sub-commands of its own."""
    group = typer.Typer(cls=_Group, help="Say what training a model takes, before it is bought.")
    group.command(PLAN, epilog=EXAMPLES, hidden=True)(plan)
    forecast_calibrate.add_to(group)
    forecast_check.add_to(group)
    forecast_validate.add_to(group)
    app.add_typer(group, name="forecast")


def plan(
    model: Annotated[
        str, typer.Argument(help="Architecture, package.module:make, file.py:make or a file.")
    ],
    batch: Annotated[int, typer.Option(min=1, help="Samples per step, of all devices together.")],
    shape: Annotated[
        str | None, typer.Option(help="Of a sample, 3,224,224, where the model does not say it.")
    ] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="Of a sequence.")] = None,
    gpus: Annotated[str, typer.Option(help="That may be rented: A100,H100. [dim]all[/dim]")] = "",
    clouds: Annotated[str, typer.Option(help="To rent from: aws,gcp. [dim]all[/dim]")] = "",
    spot: Annotated[bool, typer.Option("--spot", help="Spot markets too.")] = False,
    own: Annotated[
        str | None, typer.Option(help="Hosts that you have, such as 8xA100, in place of clouds.")
    ] = None,
    hosts: Annotated[int | None, typer.Option(min=1, help="Of --own, at most.")] = None,
    price: Annotated[float | None, typer.Option(help="Of a host of --own, $ per hour.")] = None,
    network: Annotated[
        str | None, typer.Option(help="Between hosts: 100g, infiniband-ndr; of a whole host.")
    ] = None,
    hardware: Annotated[
        Path | None, typer.Option(help="Data file or folder of yours, as calibrate writes one.")
    ] = None,
    most: Annotated[
        int, typer.Option("--most", "--most-devices", min=1, help="Devices of a plan.")
    ] = 64,
    samples: Annotated[int | None, typer.Option(min=1, help="Of an epoch.")] = None,
    epochs: Annotated[float | None, typer.Option(help="To the target.")] = None,
    total_tokens: Annotated[
        str | None, typer.Option(help="Tokens that the whole training sees: 1.5T, 15e12.")
    ] = None,
    deadline: Annotated[str | None, typer.Option(help="To the target: 90m, 36h, 5d.")] = None,
    budget: Annotated[str | None, typer.Option(help="To the target, in dollars.")] = None,
    precision: Annotated[
        PrecisionChoice | None,
        typer.Option(help="Numbers of products. [dim]16 bits on devices made for them[/dim]"),
    ] = None,
    optimizer: Annotated[OptimizerChoice, typer.Option(help="Its states need memory.")] = (
        OptimizerChoice.ADAM
    ),
    runtime: Annotated[
        str, typer.Option(help="Framework: pytorch2, fsdp, megatron, ...")
    ] = "pytorch2",
    codec: Annotated[
        CodecChoice, typer.Option(help="Of gradients between hosts; any: the fastest.")
    ] = CodecChoice.NONE,
    local_steps: Annotated[
        int, typer.Option(min=1, help="Between exchanges of local SGD, which is tried too.")
    ] = 1,
    alone: Annotated[
        str | None,
        typer.Option(help="Samples/s that one GPU of --own was measured to train: 410@64."),
    ] = None,
    input_rate: Annotated[
        float | None, typer.Option(help="Samples/s that a host reads and decodes.")
    ] = None,
    search_time: Annotated[
        str, typer.Option(help="After which no more hosts are tried once there is a plan.")
    ] = "40s",
    top: Annotated[int, typer.Option(min=1, help="Plans to show.")] = 10,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Say what training MODEL takes: hardware, strategy, time and cost, ranked. Nothing is run."""
    run_forecast = forecast.forecast  # raises first if a package is not installed
    if html_file is not None:
        from slipstream.forecast.report import forecast_page as forecast_page  # likewise
    options = forecast.ForecastOptions(
        batch=batch,
        shape=None if shape is None else parse_shape(shape),
        tokens=tokens,
        gpus=_names(gpus),
        clouds=_names(clouds),
        markets=("on-demand", "spot") if spot else ("on-demand",),
        own=own,
        hosts=hosts,
        price=price,
        network=network,
        hardware=None if hardware is None else str(hardware),
        most_devices=most,
        samples=samples,
        epochs=epochs,
        total_tokens=None if total_tokens is None else parse_count(total_tokens),
        deadline=None if deadline is None else parse_time(deadline),
        budget=None if budget is None else parse_dollars(budget),
        precision=None if precision is None else precision.value,
        optimizer=optimizer.value,
        runtime=runtime,
        codec=codec.value,
        local_steps=local_steps,
        alone=None if alone is None else parse_alone(alone),
        input_rate=input_rate,
        search_seconds=parse_time(search_time, "search time"),
    )
    with searching() as watching:
        result = run_forecast(model, options, progress=watching.tell, better=watching.better)
    asked = {"model": model, **asdict(options)}
    _write(result, asked, json_file)
    if html_file is not None:
        _write_page(result, asked, html_file, top)
    if json_file != Path("-"):
        steps = "" if result.steps is None else f", {result.steps:,.0f} steps"
        _show(result, f"{model}, {batch} samples a step, {_caption(options)}{steps}", top)
    if not result.plans:
        raise typer.Exit(1)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _caption(options: ForecastOptions) -> str:
    parts = [options.precision or "16 bits if the device supports them", options.optimizer]
    if options.samples is not None:
        epochs = f", {options.epochs:g} epochs" if options.epochs is not None else ""
        parts.append(f"{options.samples:,} samples an epoch{epochs}")
    if options.total_tokens is not None:
        parts.append(f"{options.total_tokens:,.0f} tokens in all")
    return ", ".join(parts)


def _show(result: Result, title: str, top: int) -> None:
    from slipstream.forecast.report.advice import advice
    from slipstream.forecast.report.terminal import launch_command, losers, table

    console = make_console(sys.stdout)
    console.print(title, style="bold", markup=False)
    if not result.plans:
        console.print("nothing that is allowed does it:")
    else:
        console.print(table(result, top))
        console.print("the first plan starts with", style="bold")
        console.print(launch_command(result.plans[0]), markup=False, highlight=False)
        console.print()
    if result.fit is not None:
        console.print("does the whole model fit on each device", style="bold")
        for line in advice(result.fit):
            console.print(line, markup=False, highlight=False)
        console.print()
    if result.losses or len(result.plans) > top:
        if result.plans:
            console.print("not among them", style="bold")
        console.print(losers(result, top))


def _write(result: Result, asked: dict[str, Any], file: Path | None) -> None:
    if file is None:
        return
    from slipstream.forecast.report.as_json import as_json

    text = json.dumps({"asked": asked, **as_json(result)}, indent=1) + "\n"
    if file == Path("-"):
        sys.stdout.write(text)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def _write_page(result: Result, asked: dict[str, Any], file: Path, top: int) -> None:
    from slipstream.forecast.report import forecast_page

    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(forecast_page(result, asked, top), encoding="utf-8")
