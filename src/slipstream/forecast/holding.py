"""What a device holds at the least, in closed form: what cannot fit needs no simulation."""

from __future__ import annotations

import numpy as np

from slipstream.forecast.step import Simulation
from slipstream.forecast.strategy import Agreement, Optimizer, Strategy

# The replay may find a little less: what lives on to the backward pass may be freed in it early.
_SURE = 0.9


def least(
    simulation: Simulation, strategy: Strategy, optimizer: Optimizer, *, master: bool
) -> float:
    """Returns bytes that the first device of a pipeline holds at the least.

    Args:
        simulation: of the strategy's degrees and micro-batch.
        strategy: over ranks.
        optimizer: with states.
        master: parameters are in 16 bits, with copies in fp32.
    """
    replicas = strategy.data * strategy.context
    shares = [replicas if strategy.zero >= level else 1 for level in (3, 2, 1)]
    numbers = simulation.numbers - _shared_out(simulation, strategy)
    width = 2 if master and strategy.zero < 3 else 4
    wide = 4 * (optimizer.value + (master and strategy.zero < 3))
    held = numbers / strategy.pipeline * (width / shares[0] + width / shares[1] + wide / shares[2])
    if strategy.checkpoint:
        return held
    fewest = np.sort(simulation.activations)[: simulation.blocks // simulation.ranks]
    flight = min(strategy.micro_batches, strategy.pipeline)
    return held + _SURE * float(fewest.sum()) * flight


def _shared_out(simulation: Simulation, strategy: Strategy) -> int:
    names = {name for name, choice in strategy.layers if choice is Agreement.SHARD}
    if not names:
        return 0
    return sum(each.elements for each in simulation.workload.parameters if each.name in names)
