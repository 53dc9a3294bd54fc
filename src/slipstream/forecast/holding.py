"""What a device holds at the least, in closed form: what cannot fit needs no simulation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slipstream.forecast.step import Simulation
from slipstream.forecast.strategy import Agreement, Optimizer, Strategy
from slipstream.forecast.workload import Phase

# The replay may find a little less: what lives on to the backward pass may be freed in it early.
_SURE = 0.9


@dataclass(frozen=True, slots=True)
class Floor:
    """What is there at once whatever is computed again, of the micro-batch that was traced.

    Args:
        samples: of that micro-batch.
        inputs: bytes that each block reads of earlier ones.
        working: bytes that the largest operator of each block reads and writes, but for parameters.
    """

    samples: int
    inputs: npt.NDArray[np.float64]
    working: npt.NDArray[np.float64]


def floor(simulation: Simulation) -> Floor:
    """Returns what is there at once of a simulation's workload.

    Args:
        simulation: of the strategy's degrees.
    """
    workload, places = simulation.workload, simulation.block_of.tolist()
    parameters = {each.value for each in workload.parameters}
    inputs = np.zeros(simulation.blocks)
    counted: set[int] = set()
    working = np.zeros(simulation.blocks)
    for index, operator in enumerate(workload.operators):
        touched = {*operator.reads, *operator.writes} - parameters
        sizes = [
            workload.values[value].num_bytes
            for value in touched
            if workload.values[value].born >= 0 and workload.values[value].dies >= 0
        ]
        working[places[index]] = max(working[places[index]], float(sum(sizes)))
        if operator.phase is Phase.BACKWARD:
            continue
        for value in set(operator.reads) - parameters - counted:
            born = workload.values[value].born
            if 0 <= born < index and places[born] < places[index]:
                counted.add(value)
                inputs[places[index]] += workload.values[value].num_bytes
    return Floor(workload.samples, inputs, working)


def least(
    simulation: Simulation, strategy: Strategy, optimizer: Optimizer, known: Floor, *, master: bool
) -> float:
    """Returns bytes that the fullest device of a pipeline holds at the least.

    Args:
        simulation: of the strategy's degrees and micro-batch.
        strategy: over ranks.
        optimizer: with states.
        known: of a simulation with the same degrees.
        master: parameters are in 16 bits, with copies in fp32.
    """
    replicas = strategy.data * strategy.context
    shares = [replicas if strategy.zero >= level else 1 for level in (3, 2, 1)]
    numbers = (simulation.numbers - _shared_out(simulation, strategy)) / strategy.pipeline
    width = 2 if master and strategy.zero < 3 else 4
    wide = 4 * (optimizer.value + (master and strategy.zero < 3))
    gradients = numbers * width / shares[1]
    held = numbers * (width / shares[0] + wide / shares[2])
    scale = strategy.micro_batch / strategy.context / known.samples
    kept = known.inputs * scale if strategy.checkpoint else simulation.activations
    if strategy.pipeline == 1:
        # While a block runs, all before it are kept.
        passing = _SURE * float((np.cumsum(kept) - kept + known.working * scale).max())
    else:
        fewest = np.sort(kept)[: simulation.blocks // simulation.ranks]
        passing = _SURE * float(fewest.sum()) * min(strategy.micro_batches, strategy.pipeline)
    # A lone micro-batch has freed its activations when its gradients are whole.
    alone = strategy.micro_batches == 1 and (replicas == 1 or strategy.zero >= 2)
    return held + (max(gradients, passing) if alone else gradients + passing)


def _shared_out(simulation: Simulation, strategy: Strategy) -> int:
    names = {name for name, choice in strategy.layers if choice is Agreement.SHARD}
    if not names:
        return 0
    return sum(each.elements for each in simulation.workload.parameters if each.name in names)
