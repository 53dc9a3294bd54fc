"""`slipstream bench forecast`: forecasts of steps beside the same steps in the lab."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from slipstream.bench.models import MODELS
from slipstream.cli.bench.show import telling, write
from slipstream.cli.files import writable
from slipstream.errors import UsageError
from slipstream.lab.compare import BACKENDS
from slipstream.lab.display import make_console

EXAMPLES = f"""\b
[bold]Examples[/bold]
  slipstream bench forecast                       36 steps, half an hour
  slipstream bench forecast resnet50 --hosts 4 --rates 1gbit
  slipstream bench forecast resnet50 --backends slipstream --hosts 16 --rates 200mbit --slower 150
  slipstream bench forecast resnet50 --backends slipstream --hosts 4 --ranks 4 --rates 200mbit
  slipstream bench forecast --published           speed-ups on up to 512 GPUs, seconds

\b
Models:   {", ".join(MODELS)}
Backends: {", ".join(BACKENDS)}
"""


def add_to(app: typer.Typer) -> None:
    """Make this a sub-command of `app`."""
    app.command("forecast", epilog=EXAMPLES)(forecast_steps)


def forecast_steps(
    models: Annotated[
        list[str] | None, typer.Argument(help="Models. [dim]resnet50 vgg16 bert-base[/dim]")
    ] = None,
    rates: Annotated[
        str, typer.Option(help="Rates of the hosts' links, separated by commas.")
    ] = "500mbit,1gbit,4gbit",
    hosts: Annotated[
        str, typer.Option(help="Numbers of hosts in the lab, separated by commas.")
    ] = "2,4",
    ranks: Annotated[
        int, typer.Option(help="Ranks on each host; more than 1 with slipstream only.")
    ] = 1,
    slower: Annotated[
        float, typer.Option(help="Factor by which compute is slower than published.")
    ] = (30.0),
    backends: Annotated[str, typer.Option(help="Backends of DDP, separated by commas.")] = ",".join(
        BACKENDS
    ),
    steps: Annotated[int, typer.Option(help="Measured steps of each round.")] = 3,
    rounds: Annotated[int, typer.Option(help="Rounds; in each, every backend has one turn.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure the lab for seconds only; inaccurate.")
    ] = False,
    published: Annotated[
        bool, typer.Option("--published", help="Forecast published speed-ups and run nothing.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", callback=writable, help="File for the results as JSON.")
    ] = None,
) -> None:
    """Forecast steps of real models on lab hosts, measure them, and say how far off it is.

    Links and processors are measured first, once. Needs root for the lab, PyTorch, and a machine
    on which nothing else runs.
    """
    # Imported here: the simulator and its solver take half a second, which no other command needs.
    from slipstream.bench.forecast.measure import ForecastSpec, judge
    from slipstream.bench.forecast.table import as_json, table

    if published:
        _show_published(json_file)
        return
    spec = ForecastSpec(
        models=tuple(models or ForecastSpec().models),
        rates=_names(rates),
        hosts=tuple(_whole(each) for each in _names(hosts)),
        ranks=ranks,
        slower=slower,
        backends=_names(backends),
        steps=steps,
        rounds=rounds,
        quick=quick,
    )
    with telling("the lab is made") as tell:
        report = judge(spec, tell)
    make_console(sys.stdout).print(table(report))
    write(json_file, as_json(report))


def _show_published(json_file: Path | None) -> None:
    from slipstream.bench.forecast.published import published
    from slipstream.bench.forecast.published_table import as_json, table

    rows = list(published())
    make_console(sys.stdout).print(table(rows))
    write(json_file, as_json(rows))


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"hosts has {text!r}; allowed: whole numbers with commas between")
    return int(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
