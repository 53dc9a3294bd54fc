"""`slipstream bench forecast`: forecasts of training steps, compared with measured steps."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.bench.models import MODELS
from slipstream.cli.options import (
    MEASUREMENT,
    NETWORK,
    AsJson,
    OutputFile,
    RanksPerHost,
    Rounds,
    split_counts,
    split_list,
)
from slipstream.cli.output import emit
from slipstream.cli.progress import status_line
from slipstream.lab.compare import BACKENDS

EXAMPLES = f"""\b
[bold]Examples[/bold]
  slipstream bench forecast                       36 steps, half an hour
  slipstream bench forecast resnet50 --num-hosts 4 --rates 1gbit
  slipstream bench forecast vgg16 --backends slipstream --num-hosts 4 --ranks-per-host 4
  slipstream bench forecast --published           speed-ups on up to 512 GPUs, seconds

Models: {", ".join(MODELS)}.

Backends: {", ".join(BACKENDS)}.
"""
DEFAULT_MODELS = "resnet50, vgg16 and bert-base"


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("forecast", epilog=EXAMPLES)(forecast_steps)


# over budget: a parameter for each option of the command
def forecast_steps(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL...", show_default=DEFAULT_MODELS, help="Models to forecast and measure."
        ),
    ] = None,
    published: Annotated[
        bool,
        typer.Option(
            "--published", help="Only forecast published speed-ups on many GPUs; run no steps."
        ),
    ] = False,
    slower: Annotated[
        float, typer.Option(help="Factor on the published compute time of each step.")
    ] = 30.0,
    backends: Annotated[
        str, typer.Option(metavar="LIST", help="Backends of PyTorch's DDP, separated by commas.")
    ] = ",".join(BACKENDS),
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Measure the lab for a few seconds only; the forecasts are inaccurate."
        ),
    ] = False,
    steps: Annotated[
        int,
        typer.Option(
            min=1, rich_help_panel=MEASUREMENT, help="Number of measured steps in each round."
        ),
    ] = 3,
    rounds: Rounds = 1,
    num_hosts: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            rich_help_panel=NETWORK,
            help="Numbers of hosts in the lab; each number is measured.",
        ),
    ] = "2,4",
    ranks_per_host: RanksPerHost = 1,
    rates: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            rich_help_panel=NETWORK,
            help="Bit rates of the hosts' links; each rate is measured.",
        ),
    ] = "500mbit,1gbit,4gbit",
    output: OutputFile = None,
    as_json: AsJson = False,
) -> None:
    """Forecast training steps on lab hosts, run the same steps, and show the forecasts' errors.

    Links and processors are measured once, before the training steps. The command needs PyTorch,
    root for the lab, and a machine on which nothing else runs. More than one rank on each host
    needs --backends slipstream.
    """
    # Imported here: the simulator and its solver take half a second, which no other command needs.
    from slipstream.bench.forecast import published as published_scaling
    from slipstream.bench.forecast import published_table, table
    from slipstream.bench.forecast.measure import ForecastSpec, judge

    if published:
        rows = list(published_scaling.published())
        content, shown = published_table.as_json(rows), published_table.table(rows)
        emit(content, [shown], as_json=as_json, output=output)
        return
    spec = ForecastSpec(
        models=tuple(models or ForecastSpec().models),
        rates=split_list(rates),
        hosts=split_counts(num_hosts, "--num-hosts"),
        ranks=ranks_per_host,
        slower=slower,
        backends=split_list(backends),
        steps=steps,
        rounds=rounds,
        quick=quick,
    )
    with status_line("the lab is made") as tell:
        report = judge(spec, tell)
    emit(table.as_json(report), [table.table(report)], as_json=as_json, output=output)
