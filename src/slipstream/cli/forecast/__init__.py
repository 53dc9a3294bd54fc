"""Command `slipstream forecast`: hardware, strategy, time and cost of training a model."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
)
from slipstream.cli.forecast.progress import searching
from slipstream.cli.groups import CommandGroup, CommandLine
from slipstream.cli.output import make_console
from slipstream.units import parse_duration

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
vit-base-16, bert-large, llama3-8b, dlrm-small, ... (an unknown name lists similar ones).
Without --own, the forecast ranks the offers of clouds by cost; without prices it ranks plans
by time. Eight in ten measurements lie in the interval below a number. Below the efficiency are
MFU (model FLOPs utilisation: the model's FLOPs over the devices' peak) and the limiting factor
of the plan. "tight" means that memory may not suffice.
[bold]Sub-commands[/bold]: validate compares forecasts with published measurements; calibrate
measures this machine; check forecasts a step and runs it here; see their --help.
[bold]Exit code[/bold]: 1 if no plan fits, 2 for wrong usage.
"""
PLAN = "plan"

JsonFile = Annotated[
    Path | None,
    typer.Option("--json", callback=writable, help="File for all results; - is standard output."),
]
HtmlFile = Annotated[
    Path | None, typer.Option("--html", callback=writable, help="File for a page with charts.")
]


class _Group(CommandGroup):
    """Group of sub-commands; an argument that names none of them is passed to `plan`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = [PLAN, *(args or ["--help"])]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        # The usage line omits the implicit sub-command.
        return ("" if name == PLAN else name), command, rest


def add_to(app: typer.Typer) -> None:
    """Add the command and its sub-commands to `app`."""
    group = CommandLine(
        cls=_Group, help="Forecast the hardware, time and cost of training a model."
    )
    group.command(PLAN, epilog=EXAMPLES, hidden=True)(plan)
    forecast_calibrate.add_to(group)
    forecast_check.add_to(group)
    forecast_validate.add_to(group)
    app.add_typer(group, name="forecast")


# over budget: a parameter for each option of the command
def plan(
    model: Annotated[
        str, typer.Argument(help="Architecture, package.module:make, file.py:make or a file.")
    ],
    batch: Annotated[int, typer.Option(min=1, help="Samples per step, of all devices together.")],
    shape: Annotated[
        str | None,
        typer.Option(help="Shape of a sample, such as 3,224,224, if the model does not define it."),
    ] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="Sequence length.")] = None,
    gpus: Annotated[str, typer.Option(help="Devices to rent: A100,H100. [dim]all[/dim]")] = "",
    clouds: Annotated[str, typer.Option(help="Clouds to rent from: aws,gcp. [dim]all[/dim]")] = "",
    spot: Annotated[bool, typer.Option("--spot", help="Include spot markets.")] = False,
    own: Annotated[
        str | None, typer.Option(help="Hosts that you own, such as 8xA100, instead of clouds.")
    ] = None,
    hosts: Annotated[int | None, typer.Option(min=1, help="Maximum number of --own hosts.")] = None,
    price: Annotated[
        float | None, typer.Option(help="Price of one --own host in $ per hour.")
    ] = None,
    network: Annotated[
        str | None, typer.Option(help="Network of a whole host: 100g, infiniband-ndr.")
    ] = None,
    hardware: Annotated[
        Path | None, typer.Option(help="Data file from calibrate, or a folder of them.")
    ] = None,
    most: Annotated[
        int,
        typer.Option(
            "--most", "--most-devices", min=1, help="Maximum number of devices of a plan."
        ),
    ] = 64,
    samples: Annotated[int | None, typer.Option(min=1, help="Samples per epoch.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Epochs to the target.")] = None,
    total_tokens: Annotated[
        str | None, typer.Option(help="Tokens to the target: 1.5T, 15e12.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(help="Maximum training time: 90m, 36h, 5d.")
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Maximum cost in dollars.")] = None,
    precision: Annotated[
        PrecisionChoice | None,
        typer.Option(help="Data type of matrix products. [dim]16 bits if supported[/dim]"),
    ] = None,
    optimizer: Annotated[
        OptimizerChoice, typer.Option(help="Optimizer; its states need memory.")
    ] = (OptimizerChoice.ADAM),
    runtime: Annotated[
        str, typer.Option(help="Framework: pytorch2, fsdp, megatron, ...")
    ] = "pytorch2",
    codec: Annotated[
        CodecChoice, typer.Option(help="Gradient compression between hosts; any: the fastest.")
    ] = CodecChoice.NONE,
    local_steps: Annotated[
        int,
        typer.Option(
            min=1, help="Steps between exchanges of local SGD; above 1, local SGD is tried too."
        ),
    ] = 1,
    alone: Annotated[
        str | None,
        typer.Option(help="Measured samples/s of one --own GPU at a micro-batch: 410@64."),
    ] = None,
    input_rate: Annotated[
        float | None, typer.Option(help="Samples/s that a host reads and decodes.")
    ] = None,
    search_time: Annotated[
        str, typer.Option(help="Time limit of the search, which always finds one plan.")
    ] = "40s",
    top: Annotated[int, typer.Option(min=1, help="Plans to show.")] = 10,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Forecast hardware, strategy, time and cost of training MODEL. Nothing is run."""
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
        deadline=None if deadline is None else parse_duration(deadline, "deadline"),
        budget=None if budget is None else parse_dollars(budget),
        precision=None if precision is None else precision.value,
        optimizer=optimizer.value,
        runtime=runtime,
        codec=codec.value,
        local_steps=local_steps,
        alone=None if alone is None else parse_alone(alone),
        input_rate=input_rate,
        search_seconds=parse_duration(search_time, "search time"),
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
        console.print("no allowed plan fits:")
    else:
        console.print(table(result, top))
        console.print("the first plan starts with", style="bold")
        console.print(launch_command(result.plans[0]), markup=False, highlight=False)
        console.print()
    if result.fit is not None:
        console.print("memory fit of the whole model on each device", style="bold")
        for line in advice(result.fit):
            console.print(line, markup=False, highlight=False)
        console.print()
    if result.losses or len(result.plans) > top:
        if result.plans:
            console.print("rejected plans", style="bold")
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
