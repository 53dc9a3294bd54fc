"""What a device holds at the least, in closed form: what cannot fit needs no simulation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from slipstream.forecast.simulate.compute import blend
from slipstream.forecast.simulate.simulation import Simulation
from slipstream.forecast.work.strategy import Agreement, Optimizer, Strategy
from slipstream.forecast.work.workload import TrainingPhase

# The replay may find a little less: what lives on to the backward pass may be freed in it early.
_SURE = 0.9


@dataclass(frozen=True, slots=True)
class LowerBound:
    """What is there at once whatever is computed again, of a micro-batch.

    Args:
        inputs: bytes that each block reads of earlier ones.
        working: bytes that the largest operator of each block reads and writes, but for parameters.
    """

    inputs: npt.NDArray[np.float64]
    working: npt.NDArray[np.float64]

    def between(self, other: LowerBound, share: float) -> LowerBound:
        """Returns what is there of another micro-batch, at the least.

        The largest of several operators grows no slower than this says, as each grows linearly.

        Args:
            other: simulation of a micro-batch of more samples.
            share: the place between both, 0 for this one and 1 for the other; may be beyond.
        """
        inputs, working = (
            blend(one, two, share)
            for one, two in ((self.inputs, other.inputs), (self.working, other.working))
        )
        return LowerBound(np.maximum(0.0, inputs), np.maximum(0.0, working))


def floor(simulation: Simulation) -> LowerBound:
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
        if operator.phase is TrainingPhase.BACKWARD:
            continue
        for value in set(operator.reads) - parameters - counted:
            born = workload.values[value].born
            if 0 <= born < index and places[born] < places[index]:
                counted.add(value)
                inputs[places[index]] += workload.values[value].num_bytes
    return LowerBound(inputs, working)


@dataclass(frozen=True, slots=True)
class PipelineCut:
    """What each rank of a pipeline has.

    Args:
        rank_of: rank of each block.
        numbers: trained parameters of each rank.
        kept: bytes of each block's activations that its rank reads in its own backward pass.
    """

    rank_of: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.float64]
    kept: npt.NDArray[np.float64]

    def between(self, other: PipelineCut, share: float) -> PipelineCut:
        """Returns what the ranks have of another micro-batch.

        Args:
            other: simulation of a micro-batch of more samples.
            share: the place between both, 0 for this one and 1 for the other; may be beyond.
        """
        return replace(self, kept=np.maximum(0.0, blend(self.kept, other.kept, share)))


def cut(simulation: Simulation) -> PipelineCut:
    """Returns what the ranks of a simulation's pipeline have.

    Args:
        simulation: simulation of a micro-batch that was traced.
    """
    workload, rank_of = simulation.workload, simulation.rank_of
    _, first = np.unique(simulation.block_of, return_index=True)
    numbers = np.zeros(simulation.ranks)
    for parameter in workload.gradients():
        numbers[rank_of[parameter.ready]] += parameter.elements
    forward = int((~simulation.work.backward).sum())
    back = [forward + int(np.argmax(rank_of[forward:] == rank)) for rank in range(simulation.ranks)]
    kept = np.zeros(simulation.blocks)
    for value in workload.values:
        if 0 <= value.born < forward and back[rank_of[value.born]] < value.dies:
            kept[simulation.block_of[value.born]] += value.num_bytes
    return PipelineCut(rank_of[first], numbers, kept)


def in_flight(strategy: Strategy, rank: int) -> int:
    """Returns the micro-batches whose activations a rank of a pipeline holds at once.

    Args:
        strategy: the one that has the pipeline.
        rank: the number of a rank of the pipeline, 0 for the one with the first stage.
    """
    after = strategy.pipeline - rank - 1
    if strategy.virtual == 1:
        return min(strategy.micro_batches, after + 1)
    chunks = 2 * after + (strategy.virtual - 1) * strategy.pipeline + 1
    return min(strategy.micro_batches, -(-chunks // strategy.virtual))


def least(
    strategy: Strategy,
    optimizer: Optimizer,
    known: LowerBound,
    ranks: PipelineCut,
    *,
    master: bool,
    shared_out: int = 0,
) -> npt.NDArray[np.float64]:
    """Returns bytes that the device of each rank of a pipeline holds at the least.

    Args:
        strategy: over ranks.
        optimizer: with states.
        known: the floor at the strategy's degrees and micro-batch.
        ranks: the cut at the strategy's pipeline and micro-batch.
        master: parameters are in 16 bits, with copies in fp32.
        shared_out: numbers of the parameters that replicas share out.
    """
    replicas = strategy.data * strategy.context
    shares = [replicas if strategy.zero >= level else 1 for level in (3, 2, 1)]
    numbers = ranks.numbers - shared_out
    width = 2 if master and strategy.zero < 3 else 4
    wide = 4 * (optimizer.value + (master and strategy.zero < 3))
    gradients = numbers * width / shares[1]
    held = numbers * (width / shares[0] + wide / shares[2])
    passing = _passing(strategy, known, ranks)
    # A lone micro-batch has freed its activations when its gradients are whole.
    alone = strategy.micro_batches == 1 and (replicas == 1 or strategy.zero >= 2)
    return held + (np.maximum(gradients, passing) if alone else gradients + passing)


def _passing(strategy: Strategy, known: LowerBound, ranks: PipelineCut) -> npt.NDArray[np.float64]:
    """Bytes of activations on each rank: those of earlier micro-batches in flight, and of the
    newest, while a block runs, those of the blocks before it."""
    kept, running = ranks.kept, known.working
    if strategy.checkpoint:
        # A block that runs again has all of its activations. The last block's are partly of what
        # comes after it, which does not run again.
        kept, again = known.inputs, np.append(ranks.kept[:-1], 0.0)
        running = np.maximum(running, again)
    found = np.zeros(len(ranks.numbers))
    for rank in range(len(found)):
        own = ranks.rank_of == rank
        newest = float((np.cumsum(kept[own]) - kept[own] + running[own]).max())
        found[rank] = (in_flight(strategy, rank) - 1) * float(kept[own].sum()) + newest
    return _SURE * found


def shared_out(simulation: Simulation, strategy: Strategy) -> int:
    """Returns the numbers of the parameters that a strategy's replicas share out.

    Args:
        simulation: with the parameters.
        strategy: whose layers have a strategy of their own.
    """
    names = {name for name, choice in strategy.layers if choice is Agreement.SHARD}
    if not names:
        return 0
    return sum(each.elements for each in simulation.workload.parameters if each.name in names)
