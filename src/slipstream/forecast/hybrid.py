"""How replicas agree on the gradient of each layer: summed, gathered as factors, or not at all.

A product of (batch, inputs) with a weight (inputs, outputs) has the gradient of the weight as the
product of two factors. Replicas may sum it (all-reduce), or gather the factors of all and multiply
late, or share the weight out so that each has some of its outputs, and gather activations instead.
The choice is made for all layers together, since shares need their memory and links are shared.

Source: Krizhevsky 2014, arXiv 1404.5997; Zhang et al. 2017, "Poseidon", USENIX ATC; HiGHS (Huangfu,
Hall 2018, doi 10.1007/s12532-017-0130-5) through SciPy for the integer program.
"""

# SciPy has no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from slipstream.errors import UsageError


class Choice(enum.Enum):
    """What replicas do with the gradient of a layer."""

    SUM = "all-reduce"
    FACTORS = "late multiply"
    SHARD = "shared out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer with a weight.

    Args:
        name: of the module.
        rows: that a replica multiplies: samples, pixels or tokens.
        inputs: of the product.
        outputs: of the product.
        flops_per_second: that its products reach.
    """

    name: str
    rows: int
    inputs: int
    outputs: int
    flops_per_second: float


@dataclass(frozen=True, slots=True)
class Option:
    """A choice for a layer.

    Args:
        choice: which.
        seconds: that it adds to a step: communication and what is computed several times.
        num_bytes: of parameters, gradients and states that a rank keeps for the layer.
    """

    choice: Choice
    seconds: float
    num_bytes: float


def options(
    layer: Layer, ranks: int, rate: float, latency: float, *, element: int = 4, kept: int = 16
) -> list[Option]:
    """Returns what can be done with a layer.

    Args:
        layer: with its sizes.
        ranks: replicas.
        rate: bytes per second that each sends, and as many that it receives.
        latency: seconds of a step of a collective.
        element: bytes of a number on the wire.
        kept: bytes that a rank keeps per parameter: itself, its gradient, states.
    """
    weights = layer.inputs * layer.outputs
    share = (ranks - 1) / ranks
    summed = 2 * share * weights * element / rate + 2 * (ranks - 1) * latency
    factors = layer.rows * (layer.inputs + layer.outputs) * element * (ranks - 1) / rate
    factors += (ranks - 1) * latency
    again = 2.0 * layer.rows * (ranks - 1) * weights / layer.flops_per_second
    # Each rank multiplies the rows of all with its outputs: inputs are gathered, outputs sent back
    # to the rank that has the row; their gradients go the other way.
    gathered = layer.rows * (ranks - 1) * layer.inputs * element / rate
    sent = layer.rows * share * layer.outputs * element / rate
    sharded = 2 * (gathered + sent) + 4 * (ranks - 1) * latency
    return [
        Option(Choice.SUM, summed, weights * kept),
        Option(Choice.FACTORS, factors + again, weights * kept),
        Option(Choice.SHARD, sharded, weights * kept / ranks),
    ]


def choose(layers: Sequence[Sequence[Option]], memory_bytes: float) -> list[Option]:
    """Returns the option of each layer so that the sum of seconds is least and all fits.

    An integer program with one 0-1 variable per layer and option. Blocks for some milliseconds for
    hundreds of layers.

    Args:
        layers: the options of each.
        memory_bytes: for all layers together on one rank.

    Raises:
        UsageError: no choice fits.
    """
    flat = [option for layer in layers for option in layer]
    if not flat:
        return []
    one_each = np.zeros((len(layers), len(flat)))
    column = 0
    for row, layer in enumerate(layers):
        one_each[row, column : column + len(layer)] = 1
        column += len(layer)
    sizes = np.array([[option.num_bytes for option in flat]]) / memory_bytes
    found = milp(
        np.array([option.seconds for option in flat]) * 1e3,
        integrality=np.ones(len(flat)),
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(one_each, 1, 1), LinearConstraint(sizes, -np.inf, 1)],
    )
    if not found.success:
        least = sum(min(option.num_bytes for option in layer) for layer in layers)
        raise UsageError(
            f"layers need at least {least / 2**30:.1f} GiB on each rank, with all shared out;"
            f" {memory_bytes / 2**30:.1f} GiB are there: take more ranks or a larger device"
        )
    taken = np.round(found.x).astype(bool)
    return [option for option, chosen in zip(flat, taken, strict=True) if chosen]
