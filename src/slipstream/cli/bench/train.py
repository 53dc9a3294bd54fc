"""`slipstream bench train`: samples per second of real training on lab hosts, and the losses."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.bench.train import table as train_table
from slipstream.bench.train.measure import MODELS, TrainSpec, train
from slipstream.cli.lab_spec import lab_spec
from slipstream.cli.options import (
    MEASUREMENT,
    AsJson,
    FlowRate,
    NumHosts,
    OutputFile,
    Peers,
    RanksPerHost,
    RateOrRates,
    Rounds,
    split_list,
    split_peers,
)
from slipstream.cli.output import emit
from slipstream.cli.progress import status_line
from slipstream.errors import SlipstreamError

EXAMPLES = f"""\b
[bold]Examples[/bold]
  slipstream bench train
  slipstream bench train --models large --flow-rate 250mbit --codecs none,fp16
  slipstream bench train --models resnet --peers none -o resnet.json

Models: {", ".join(MODELS)}. Peer: gloo.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("train", epilog=EXAMPLES)(train_models)


# over budget: a parameter for each option of the command
def train_models(
    models: Annotated[
        str, typer.Option(metavar="LIST", help="Models to train, separated by commas.")
    ] = "resnet,large",
    codecs: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Codecs that compress gradients between hosts, separated by commas.",
        ),
    ] = "none",
    peers: Peers = "gloo",
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="as many as take a few seconds",
            rich_help_panel=MEASUREMENT,
            help="Number of measured training steps in each round.",
        ),
    ] = None,
    rounds: Rounds = 5,
    num_hosts: NumHosts = None,
    ranks_per_host: RanksPerHost = 1,
    rate: RateOrRates = "1gbit",
    flow_rate: FlowRate = None,
    output: OutputFile = None,
    as_json: AsJson = False,
) -> None:
    """Train models, and show losses and samples per second.

    gloo and Slipstream train with DDP. Slipstream also trains with slipstream.torch.overlap, which
    lets communication overlap with the next forward pass, too.
    """
    spec = TrainSpec(
        models=split_list(models),
        lab=lab_spec(num_hosts, ranks_per_host, rate, flow_rate),
        steps=steps,
        rounds=rounds,
        peers=split_peers(peers),
        codecs=split_list(codecs),
    )
    with status_line() as tell:
        results = train(spec, tell)
    emit(
        train_table.as_json(spec, results),
        [train_table.table(spec, results)],
        as_json=as_json,
        output=output,
    )
    for result in results:
        for trained in result.trained:
            if not result.agrees(trained):
                raise SlipstreamError(
                    f"{result.model} over {trained.contender} has another loss than over gloo"
                )
