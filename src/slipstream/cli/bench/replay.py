"""`slipstream bench replay`: real models on lab hosts, with each peer, beside the limits."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from slipstream.bench.models import MODELS
from slipstream.bench.replay.measure import PEERS, ReplaySpec, default_peers, limits, peers, replay
from slipstream.bench.replay.presets import PRESETS
from slipstream.bench.replay.table import as_json, table
from slipstream.cli.bench.show import telling, write
from slipstream.cli.files import writable
from slipstream.lab.display import make_console

EXAMPLES = f"""\b
[bold]Examples[/bold]
  slipstream bench replay resnet50 vgg16 bert-base
  slipstream bench replay vgg16 --peer gloo --peer slipstream --json vgg16.json
  slipstream bench replay bert-base --preset v100-16x8 --limits

\b
Models:  {", ".join(MODELS)}
Peers:   {", ".join(PEERS)}
Presets: {", ".join(PRESETS)}
"""


def add_to(app: typer.Typer) -> None:
    """Make this a sub-command of `app`."""
    app.command("replay", epilog=EXAMPLES)(replay_models)


def replay_models(
    models: Annotated[list[str], typer.Argument(help="Models, one or more.")],
    preset: Annotated[
        str, typer.Option(help="Published setting whose ratio of compute to network is kept.")
    ] = "v100-4x8",
    peer: Annotated[
        list[str] | None, typer.Option(help="Peer; repeat it for several. Default: all.")
    ] = None,
    hosts: Annotated[int, typer.Option(help="Hosts of the lab, a rank on each.")] = 4,
    rate: Annotated[str, typer.Option(help="Rate of each host's link.")] = "1gbit",
    steps: Annotated[int, typer.Option(help="Measured steps of each round.")] = 4,
    rounds: Annotated[int, typer.Option(help="Rounds; in each, every peer has one turn.")] = 2,
    busy: Annotated[
        bool, typer.Option("--busy", help="Multiply matrices instead of sleeping.")
    ] = False,
    sparse: Annotated[
        bool, typer.Option("--sparse", help="Send only the touched rows of embeddings.")
    ] = False,
    only_limits: Annotated[
        bool, typer.Option("--limits", help="Compute the limits and run nothing.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", callback=writable, help="File for the results as JSON.")
    ] = None,
) -> None:
    """Replay real models: gradients of the real sizes in the real order, compute that takes time.

    Needs root for the lab, PyTorch, and a machine on which nothing else runs.
    """
    spec = ReplaySpec(
        models=tuple(models),
        preset=preset,
        hosts=hosts,
        rate=rate,
        steps=steps,
        rounds=rounds,
        busy=busy,
        sparse=sparse,
    )
    if only_limits:
        rows = limits(spec)
    else:
        with telling("the lab is made") as tell:
            rows = replay(spec, peers(peer) if peer else default_peers(spec), tell)
    make_console(sys.stdout).print(table(spec, rows))
    write(json_file, as_json(spec, rows))
