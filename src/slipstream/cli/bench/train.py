"""`slipstream bench train`: samples per second of real training on lab hosts, and the losses."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.bench.devices import CPU
from slipstream.bench.train import table as train_table
from slipstream.bench.train.measure import (
    CPU_MODELS,
    DEVICE_MODELS,
    DEVICE_PEERS,
    GLOO,
    MODELS,
    TrainSpec,
    train,
)
from slipstream.cli.lab_spec import lab_spec
from slipstream.cli.options import (
    MEASUREMENT,
    AsJson,
    Device,
    FlowRate,
    NumHosts,
    OutputFile,
    RanksPerHost,
    RateOrRates,
    Relay,
    Rounds,
    peers_option,
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
  slipstream bench train --device cuda --num-hosts 2 --rate 10gbit   real networks on GPUs

Models: {", ".join(MODELS)}.

Peers: {", ".join(DEVICE_PEERS)}. A peer that cannot run is listed with the reason.
"""

DEFAULT_CODECS, DEVICE_CODECS = "none", "none,bf16,int8"


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("train", epilog=EXAMPLES)(train_models)


# over budget: a parameter for each option of the command
def train_models(
    models: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            show_default=f"{','.join(CPU_MODELS)}; on a device {','.join(DEVICE_MODELS)}",
            help="Models to train, separated by commas.",
        ),
    ] = None,
    codecs: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            show_default=f"{DEFAULT_CODECS}; on a device {DEVICE_CODECS}",
            help="Codecs that compress gradients between hosts, separated by commas.",
        ),
    ] = None,
    peers: Annotated[str | None, peers_option(show_default=f"{GLOO}; on a device all")] = None,
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
    device: Device = CPU,
    num_hosts: NumHosts = None,
    ranks_per_host: RanksPerHost = 1,
    rate: RateOrRates = "1gbit",
    flow_rate: FlowRate = None,
    relay: Relay = False,
    output: OutputFile = None,
    as_json: AsJson = False,
) -> None:
    """Train models, and show losses and samples per second.

    gloo and Slipstream train with DDP. Slipstream also trains with slipstream.torch.overlap, which
    lets communication overlap with the next forward pass, too.
    """
    is_cpu = device == CPU
    default_peers = (GLOO,) if is_cpu else DEVICE_PEERS
    spec = TrainSpec(
        models=split_list(models) if models else CPU_MODELS if is_cpu else DEVICE_MODELS,
        lab=lab_spec(num_hosts, ranks_per_host, rate, flow_rate),
        steps=steps,
        rounds=rounds,
        peers=default_peers if peers is None else split_peers(peers),
        codecs=split_list(codecs or (DEFAULT_CODECS if is_cpu else DEVICE_CODECS)),
        device=device,
        relay=relay,
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
