"""`slipstream bench`: the product's own benchmarks, each beside its peers and its limit."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from slipstream.bench.comm import bars as comm_bars
from slipstream.bench.comm import table as comm_table
from slipstream.bench.comm.limits import CODEC_SHARE, COLLECTIVES
from slipstream.bench.comm.measure import PEERS, CommSpec, measure
from slipstream.bench.train import table as train_table
from slipstream.bench.train.measure import MODELS, TrainSpec, train
from slipstream.cli.bench import forecast as bench_forecast
from slipstream.cli.bench import images as bench_pictures
from slipstream.cli.bench import infer as bench_infer
from slipstream.cli.bench import negotiate as bench_negotiate
from slipstream.cli.bench import replay as bench_replay
from slipstream.cli.bench import serve as bench_serve
from slipstream.cli.bench.show import telling, write
from slipstream.cli.files import writable
from slipstream.errors import SlipstreamError, UsageError
from slipstream.lab import LabSpec
from slipstream.lab.display import make_console, stderr_console
from slipstream.units import parse_bytes

HELP = """Measure Slipstream, its peers and what the links allow, by turns.

In a lab of its own (Linux, root, iproute2); nothing else should run on the machine.
"""
COMM_EXAMPLES = f"""\b
[bold]Examples[/bold]
  slipstream bench comm                           four lab hosts at 1 Gbit/s
  slipstream bench comm --local 2                 this machine, no root needed
  slipstream bench comm --codec none,fp16,int8 --sizes 100m
  slipstream bench comm --racks 2 --uplink 250mbit --ranks-per-host 2 --peers gloo,ring
  slipstream bench comm --cross-traffic 500mbit --sizes 25m --rounds 100
  slipstream bench comm --preset bars --json bars.json

\b
Collectives: {", ".join(COLLECTIVES)}
Codecs:      {", ".join(CODEC_SHARE)}
Peers:       {", ".join(PEERS)}
"""

TRAIN_EXAMPLES = f"""\b
[bold]Examples[/bold]
  slipstream bench train
  slipstream bench train --model large --flow-rate 250mbit --codec none,fp16

\b
Models: {", ".join(MODELS)}
"""

JsonFile = Annotated[
    Path | None,
    typer.Option("--json", callback=writable, help="File for all measurements as JSON."),
]


def add_to(app: typer.Typer) -> None:
    """Make this a sub-command of `app`, with sub-commands of its own."""
    bench_app = typer.Typer(help=HELP, no_args_is_help=True)
    bench_app.command("comm", epilog=COMM_EXAMPLES)(comm)
    bench_app.command("train", epilog=TRAIN_EXAMPLES)(train_models)
    bench_replay.add_to(bench_app)
    bench_forecast.add_to(bench_app)
    bench_negotiate.add_to(bench_app)
    bench_infer.add_to(bench_app)
    bench_pictures.add_to(bench_app)
    bench_serve.add_to(bench_app)
    app.add_typer(bench_app, name="bench")


def comm(
    collective: Annotated[
        str, typer.Option(help="Collectives, separated by commas.")
    ] = "allreduce",
    sizes: Annotated[
        str, typer.Option(help="Sizes of a rank's larger buffer: 4k,100m,64ki.")
    ] = "4k,64k,1m,16m,100m",
    hosts: Annotated[int, typer.Option(help="Hosts of the lab.")] = 4,
    ranks_per_host: Annotated[int, typer.Option(help="Ranks on each host.")] = 1,
    rate: Annotated[
        str, typer.Option(help="Rate of the hosts' links, one or one per host.")
    ] = "1gbit",
    flow_rate: Annotated[
        str | None, typer.Option(help="Highest rate of one connection; several: one per path.")
    ] = None,
    racks: Annotated[
        int, typer.Option(help="Racks, among which the hosts are divided evenly.")
    ] = 1,
    uplink: Annotated[str | None, typer.Option(help="Rate between a rack and the spine.")] = None,
    local: Annotated[
        int | None, typer.Option(help="Ranks on this machine instead of a lab.")
    ] = None,
    codec: Annotated[str, typer.Option(help="Codecs of our allreduce between hosts.")] = "none",
    peers: Annotated[
        str, typer.Option(help="Peers; those that are not installed are left out.")
    ] = "gloo,mpi,nccl",
    rounds: Annotated[int, typer.Option(help="Rounds; in each, every contender has one turn.")] = 5,
    cross_traffic: Annotated[
        str, typer.Option(help="Rate of cross traffic from each host to the next: 500mbit.")
    ] = "",
    preset: Annotated[
        str | None, typer.Option(help="Suite in place of single options; bars: all promises.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Measure collectives by size: time, bandwidth, bytes on links, beside peers and limits."""
    if preset not in (None, "bars"):
        raise UsageError(f"the preset is {preset!r}; allowed: bars")
    if preset:
        _bars(rounds, json_file)
        return
    lab = None if local is not None else _lab(hosts, ranks_per_host, rate, flow_rate, racks, uplink)
    spec = CommSpec(
        collectives=_names(collective),
        sizes=tuple(parse_bytes(each, least=4) for each in _names(sizes)),
        lab=lab,
        local=local or 0,
        codecs=_names(codec),
        peers=_names(peers),
        rounds=rounds,
        cross_traffic=cross_traffic,
    )
    with telling() as tell:
        report = measure(spec, tell)
    for note in report.notes:
        stderr_console().print(note, style="dim")
    for table in comm_table.tables(report):
        make_console(sys.stdout).print(table)
    write(json_file, comm_table.as_json(report))


def train_models(
    model: Annotated[str, typer.Option(help="Models, separated by commas.")] = "resnet,large",
    hosts: Annotated[int, typer.Option(help="Hosts of the lab.")] = 4,
    ranks_per_host: Annotated[int, typer.Option(help="Ranks on each host.")] = 1,
    rate: Annotated[
        str, typer.Option(help="Rate of the hosts' links, one or one per host.")
    ] = "1gbit",
    flow_rate: Annotated[
        str | None, typer.Option(help="Highest rate of one connection; several: one per path.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Steps of each turn. [dim]a few seconds of them[/dim]")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds; in each, every contender has one turn.")] = 5,
    peers: Annotated[str, typer.Option(help="Peer: gloo, or empty for none.")] = "gloo",
    codec: Annotated[str, typer.Option(help="Codecs of gradients between hosts.")] = "none",
    json_file: JsonFile = None,
) -> None:
    """Train models: samples per second under DDP and across the step boundary, and the losses."""
    spec = TrainSpec(
        models=_names(model),
        lab=_lab(hosts, ranks_per_host, rate, flow_rate, 1, None),
        steps=steps,
        rounds=rounds,
        peers=_names(peers),
        codecs=_names(codec),
    )
    with telling() as tell:
        results = train(spec, tell)
    make_console(sys.stdout).print(train_table.table(spec, results))
    write(json_file, train_table.as_json(spec, results))
    for result in results:
        for trained in result.trained:
            if not result.agrees(trained):
                raise SlipstreamError(
                    f"{result.model} over {trained.contender} has another loss than over gloo"
                )


def _bars(rounds: int, json_file: Path | None) -> None:
    console = make_console(sys.stdout)
    outcomes: list[comm_bars.Outcome] = []
    with telling() as tell:
        for outcome in comm_bars.run(comm_bars.cases(rounds=rounds), tell):
            outcomes.append(outcome)
            if outcome.report is None:
                stderr_console().print(outcome.error, style="red", markup=False)
                continue
            for table in comm_table.tables(outcome.report):
                console.print(table)
    console.print(comm_bars.bars_table(outcomes))
    write(json_file, comm_bars.bars_as_json(outcomes))
    if any(outcome.report is None for outcome in outcomes):
        raise typer.Exit(1)


def _lab(
    hosts: int,
    ranks_per_host: int,
    rate: str,
    flow_rate: str | None,
    racks: int,
    uplink: str | None,
) -> LabSpec:
    rates, flow_rates = _names(rate), _names(flow_rate or "")
    return LabSpec(
        hosts=hosts,
        ranks_per_host=ranks_per_host,
        rate=rates[0] if rates else rate,
        rates=rates if len(rates) > 1 else (),
        flow_rate=flow_rates[0] if len(flow_rates) == 1 else None,
        flow_rates=flow_rates if len(flow_rates) > 1 else (),
        racks=racks,
        uplink=uplink,
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
