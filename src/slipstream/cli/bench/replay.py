"""`slipstream bench replay`: training steps on lab hosts, compared with other libraries."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.bench.devices import CPU
from slipstream.bench.models import MODELS
from slipstream.bench.replay.measure import PEERS, ReplaySpec, default_peers, limits, peers, replay
from slipstream.bench.replay.presets import PRESETS
from slipstream.bench.replay.table import as_json, table
from slipstream.cli.lab_spec import DEFAULT_HOSTS
from slipstream.cli.options import (
    MEASUREMENT,
    AsJson,
    Device,
    NumHosts,
    OutputFile,
    Rate,
    Relay,
    Rounds,
    peers_option,
    split_peers,
)
from slipstream.cli.output import emit
from slipstream.cli.progress import status_line

EXAMPLES = f"""\b
[bold]Examples[/bold]
  slipstream bench replay resnet50 vgg16 bert-base
  slipstream bench replay vgg16 --peers gloo,slipstream -o vgg16.json
  slipstream bench replay bert-base --preset v100-16x8 --limits
  slipstream bench replay resnet50 --device cuda --num-hosts 2 --rate 10gbit

Models: {", ".join(MODELS)}.

Peers: {", ".join(PEERS)}.

Presets: {", ".join(PRESETS)}.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("replay", epilog=EXAMPLES)(replay_models)


# over budget: a parameter for each option of the command
def replay_models(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Models to replay.")],
    preset: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Published training set-up whose ratio of compute to communication is used.",
        ),
    ] = "v100-4x8",
    peer_names: Annotated[str | None, peers_option(show_default="all that are installed")] = None,
    busy: Annotated[
        bool,
        typer.Option("--busy", help="Simulate compute by multiplying matrices, not by sleeping."),
    ] = False,
    sparse: Annotated[
        bool, typer.Option("--sparse", help="Send only the touched rows of embeddings.")
    ] = False,
    only_limits: Annotated[
        bool, typer.Option("--limits", help="Show the shortest possible step times; run nothing.")
    ] = False,
    steps: Annotated[
        int,
        typer.Option(
            min=1, rich_help_panel=MEASUREMENT, help="Number of measured steps in each round."
        ),
    ] = 4,
    rounds: Rounds = 2,
    device: Device = CPU,
    num_hosts: NumHosts = None,
    rate: Rate = "1gbit",
    relay: Relay = False,
    output: OutputFile = None,
    as_json_: AsJson = False,
) -> None:
    """Replay training steps of real models with real gradient sizes and simulated compute.

    Each host of the lab has one rank. The command needs PyTorch, root for the lab, and a
    machine on which nothing else runs.
    """
    spec = ReplaySpec(
        models=tuple(models),
        preset=preset,
        hosts=num_hosts or DEFAULT_HOSTS,
        rate=rate,
        steps=steps,
        rounds=rounds,
        busy=busy,
        sparse=sparse,
        device=device,
        relay=relay,
    )
    if only_limits:
        rows, missing = limits(spec), {}
    else:
        chosen = default_peers(spec) if peer_names is None else peers(split_peers(peer_names))
        missing = spec.missing(chosen)
        with status_line("the lab is made") as tell:
            rows = replay(spec, chosen, tell)
    emit(
        as_json(spec, rows, missing), [table(spec, rows, missing)], as_json=as_json_, output=output
    )
