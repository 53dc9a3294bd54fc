"""`slipstream forecast MODEL`: hardware, strategy, time and cost of training a model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from slipstream import forecast
from slipstream.cli.forecast.options import (
    Alone,
    Batch,
    Budget,
    Clouds,
    Codec,
    CodecChoice,
    Deadline,
    Epochs,
    Gpus,
    HardwareFile,
    InputRate,
    LocalSteps,
    MaxDevices,
    MaxHosts,
    Model,
    Network,
    NoObservations,
    Optimizer,
    OptimizerChoice,
    Own,
    PlanPrecision,
    PlansFile,
    Price,
    Runtime,
    Samples,
    SearchTime,
    Shape,
    Spot,
    Tokens,
    Top,
    TotalTokens,
    parse_alone,
    parse_count,
    parse_dollars,
    parse_shape,
)
from slipstream.cli.forecast.progress import searching
from slipstream.cli.options import AsJson, HtmlFile, split_list
from slipstream.cli.output import emit, write_file
from slipstream.settings import home_folder, observations_file
from slipstream.units import parse_duration

if TYPE_CHECKING:
    from rich.console import RenderableType

    from slipstream.forecast import ForecastOptions, Result

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream forecast resnet50 --batch 256
  slipstream forecast resnet50 --batch 2048 --samples 1281167 --epochs 90 --deadline 6h
  slipstream forecast gpt2 --batch 512 --tokens 1024 --gpus A100,H100 --total-tokens 9B
  slipstream forecast llama3-8b --batch 64 --own 8xH100 --max-hosts 4 --network 400g
  slipstream forecast models.py:make --batch 128 --shape 3,224,224 --clouds aws --spot
  slipstream forecast vit-base-16 --batch 1024 --own 8xA100 --network 100g --alone 410@64
  slipstream forecast model.onnx --batch 64 --max-devices 16 -o plans.json --html plans.html
  slipstream forecast gpt2 --batch 512 --gpus H100 --json | slipstream run --plan - train.py
  slipstream forecast calibrate -o here.toml
  slipstream forecast check resnet18 --batch 16 --hardware here.toml
  slipstream forecast validate table.csv

MODEL is package.module:function or path.py:function, which returns a torch.nn.Module; an ONNX
file; a config.json of Hugging Face; or an architecture: resnet50, vgg16, gpt2, vit-base-16,
bert-large, llama3-8b, dlrm-small, ... (an unknown name lists similar ones).

Without --own, the forecast ranks the offers of clouds by cost; without prices it ranks plans by
time. Eight in ten measurements lie in the interval below a number. Below the efficiency are MFU
(model FLOPs utilisation: the model's FLOPs over the devices' peak) and the limiting factor of the
plan. "tight" means that memory may not suffice.

[bold]Sub-commands[/bold]: validate compares forecasts with published measurements; calibrate
measures this machine; check forecasts a step and runs it here; see their --help.

[bold]Exit code[/bold]: 1 if no plan fits, 2 for wrong usage.
"""


AS_JOB = "as a job: slipstream forecast ... --json | slipstream run --plan - train.py\n"


# over budget: a parameter for each option of the command
def plan(
    model: Model,
    batch: Batch,
    shape: Shape = None,
    tokens: Tokens = None,
    samples: Samples = None,
    epochs: Epochs = None,
    total_tokens: TotalTokens = None,
    deadline: Deadline = None,
    budget: Budget = None,
    gpus: Gpus = "",
    clouds: Clouds = "",
    spot: Spot = False,
    own: Own = None,
    max_hosts: MaxHosts = None,
    max_devices: MaxDevices = 64,
    price: Price = None,
    network: Network = None,
    hardware: HardwareFile = None,
    alone: Alone = None,
    precision: PlanPrecision = None,
    optimizer: Optimizer = OptimizerChoice.ADAM,
    runtime: Runtime = "pytorch2",
    codec: Codec = CodecChoice.NONE,
    local_steps: LocalSteps = 1,
    input_rate: InputRate = None,
    no_observations: NoObservations = False,
    search_time: SearchTime = "40s",
    top: Top = 10,
    as_json: AsJson = False,
    output: PlansFile = None,
    html: HtmlFile = None,
) -> None:
    """Forecast hardware, strategy, time and cost of training MODEL. Nothing is run."""
    run_forecast = forecast.forecast  # raises an error at once if a package is not installed
    if html is not None:
        # This import raises an error too if a package is not installed.
        from slipstream.forecast.report import forecast_page as forecast_page
    options = forecast.ForecastOptions(
        batch=batch,
        shape=None if shape is None else parse_shape(shape),
        tokens=tokens,
        gpus=split_list(gpus),
        clouds=split_list(clouds),
        markets=("on-demand", "spot") if spot else ("on-demand",),
        own=own,
        max_hosts=max_hosts,
        price=price,
        network=network,
        hardware=None if hardware is None else str(hardware),
        max_devices=max_devices,
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
        observations=None if no_observations else _observations(),
        search_seconds=parse_duration(search_time, "search time"),
    )
    with searching() as display:
        result = run_forecast(model, options, progress=display.tell, better=display.better)
    asked = {"model": model, **asdict(options)}
    _emit(result, options, asked, top, as_json=as_json, output=output)
    if html is not None:
        _write_page(result, asked, html, top)
    if not result.plans:
        raise typer.Exit(1)


def _observations() -> str | None:
    """Return the path of the file of earlier runs, or None if there is none yet."""
    path = observations_file(home_folder())
    return str(path) if path.exists() else None


def _emit(
    result: Result,
    options: ForecastOptions,
    asked: dict[str, Any],
    top: int,
    *,
    as_json: bool,
    output: Path | None,
) -> None:
    """Print the plans, as tables or JSON, and write them to a file."""
    from slipstream.forecast.report.as_json import as_json as result_as_json

    steps = "" if result.steps is None else f", {result.steps:,.0f} steps"
    title = f"{asked['model']}, {options.batch} samples a step, {_caption(options)}{steps}"
    emit(
        {"asked": asked, **result_as_json(result, asked["model"])},
        _parts(result, title, top),
        as_json=as_json,
        output=output,
    )


def _write_page(result: Result, asked: dict[str, Any], file: Path, top: int) -> None:
    from slipstream.forecast.report import forecast_page

    write_file(file, forecast_page(result, asked, top))


def _caption(options: ForecastOptions) -> str:
    parts = [options.precision or "16 bits if the device supports them", options.optimizer]
    if options.samples is not None:
        epochs = f", {options.epochs:g} epochs" if options.epochs is not None else ""
        parts.append(f"{options.samples:,} samples an epoch{epochs}")
    if options.total_tokens is not None:
        parts.append(f"{options.total_tokens:,.0f} tokens in all")
    return ", ".join(parts)


def _parts(result: Result, title: str, top: int) -> list[RenderableType]:
    """Return the tables and texts that show a result to people."""
    from rich.text import Text

    from slipstream.forecast.report.advice import advice
    from slipstream.forecast.report.terminal import corrections, launch_command, losers, table

    parts: list[RenderableType] = [Text(title, style="bold")]
    if result.plans:
        # The command is not broken into lines, so that it can be copied.
        command = Text(f"{launch_command(result.plans[0])}", no_wrap=True, overflow="ignore")
        parts += [*corrections(result.plans[:top]), table(result, top)]
        parts += [Text("the first plan starts with", style="bold"), command]
        parts += [Text(AS_JOB, no_wrap=True, overflow="ignore", style="dim")]
    else:
        parts.append("no allowed plan fits:")
    if result.fit is not None:
        parts.append(Text("memory fit of the whole model on each device", style="bold"))
        parts += [*advice(result.fit), ""]
    if result.losses or len(result.plans) > top:
        if result.plans:
            parts.append(Text("rejected plans", style="bold"))
        parts.append(losers(result, top))
    return parts
