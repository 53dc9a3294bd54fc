"""Lower bounds of device memory in closed form, which can rule out a strategy quickly."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from slipstream.forecast.simulate.compute import blend
from slipstream.forecast.simulate.simulation import Simulation
from slipstream.forecast.work.strategy import Agreement, Optimizer, Strategy
from slipstream.forecast.work.workload import TrainingPhase

# Factor on the activations in the bound. A strategy may need less memory than all its activations
# together, because an activation may be freed early in the backward pass. Of 298 strategies of five
# models, 293 need at least the bound with this factor. The others are VGG16 in eight stages with
# checkpoints, which need 0.88 of the bound with this factor, and 0.79 of the bound without it.
_SURE = 0.9


@dataclass(frozen=True, slots=True)
class LowerBound:
    """Activations of a micro-batch that are in memory even with activation checkpointing.

    Args:
        inputs: Bytes that each block reads from earlier blocks.
        working: Bytes that the largest operator of each block reads and writes, without parameters.
    """

    inputs: npt.NDArray[np.float64]
    working: npt.NDArray[np.float64]

    def between(self, other: LowerBound, share: float) -> LowerBound:
        """Return the lower bound of the activations at another micro-batch size.

        The bytes of an operator are a linear function of the micro-batch size. So the bytes of the
        largest operator are a convex function, and the result lies on a straight line through two
        of its points. Outside these points, the line is a lower bound of the function. Between
        them, the line exceeds the function if different operators are the largest at both points.

        Args:
            other: Lower bound at a larger micro-batch size.
            share: Position of the other micro-batch size: 0 is the size of this bound, 1 is the
                size of `other`; the position may be below 0 or above 1.
        """
        inputs, working = (
            blend(one, two, share)
            for one, two in ((self.inputs, other.inputs), (self.working, other.working))
        )
        return LowerBound(np.maximum(0.0, inputs), np.maximum(0.0, working))


def floor(simulation: Simulation) -> LowerBound:
    """Return the lower bound of the activations for the workload of a simulation.

    Args:
        simulation: Simulation with the strategy's degrees of parallelism.
    """
    workload, places = simulation.workload, simulation.block_of.tolist()
    parameters = {parameter.value for parameter in workload.parameters}
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
    """Parameters and activations of each pipeline rank.

    Args:
        rank_of: Pipeline rank of each block.
        numbers: Number of trained parameters of each rank.
        activations: Bytes of the values of each block that stay in memory until the backward pass.
    """

    rank_of: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.float64]
    activations: npt.NDArray[np.float64]

    def between(self, other: PipelineCut, share: float) -> PipelineCut:
        """Return the parameters and activations at another micro-batch size.

        The bytes of activations are interpolated linearly.

        Args:
            other: Parameters and activations at a larger micro-batch size.
            share: Position of the micro-batch size on a scale with the size of this value at 0 and
                the size of `other` at 1; a position above 1 extrapolates.
        """
        return replace(
            self, activations=np.maximum(0.0, blend(self.activations, other.activations, share))
        )


def cut(simulation: Simulation) -> PipelineCut:
    """Return the parameters and activations of the pipeline ranks of a simulation.

    Args:
        simulation: Simulation of a traced micro-batch.
    """
    workload, rank_of = simulation.workload, simulation.placement.rank_of
    _, first = np.unique(simulation.block_of, return_index=True)
    numbers = np.zeros(simulation.placement.ranks)
    for parameter in workload.gradients():
        numbers[rank_of[parameter.ready]] += parameter.elements
    forward = int((~simulation.work.backward).sum())
    back = [
        forward + int(np.argmax(rank_of[forward:] == rank))
        for rank in range(simulation.placement.ranks)
    ]
    activations = np.zeros(simulation.blocks)
    for value in workload.values:
        if 0 <= value.born < forward and back[rank_of[value.born]] < value.dies:
            activations[simulation.block_of[value.born]] += value.num_bytes
    return PipelineCut(rank_of[first], numbers, activations)


def in_flight(strategy: Strategy, rank: int) -> int:
    """Return the number of micro-batches whose activations a pipeline rank stores at once.

    Args:
        strategy: Strategy with the pipeline degree, interleaving and number of micro-batches.
        rank: Index of the pipeline rank; rank 0 runs the first stage.
    """
    after = strategy.pipeline - rank - 1
    if strategy.virtual == 1:
        return min(strategy.micro_batches, after + 1)
    chunks = 2 * after + (strategy.virtual - 1) * strategy.pipeline + 1
    return min(strategy.micro_batches, -(-chunks // strategy.virtual))


def least(
    strategy: Strategy,
    optimizer: Optimizer,
    bound: LowerBound,
    ranks: PipelineCut,
    *,
    master: bool,
    shared_out: int = 0,
) -> npt.NDArray[np.float64]:
    """Return the lower bound of the memory of each pipeline rank in bytes.

    Args:
        strategy: Strategy whose memory is bounded.
        optimizer: Optimizer, which determines the number of states per parameter.
        bound: Lower bound of the activations at the strategy's degrees of parallelism and
            micro-batch size.
        ranks: Parameters and activations of the pipeline ranks at the strategy's micro-batch size.
        master: Whether parameters are stored in 16 bits, with master copies in fp32.
        shared_out: Number of parameters of sharded layers, from the function `shared_out`; the
            bound leaves these parameters out (default 0).
    """
    replicas = strategy.data * strategy.context
    shares = [replicas if strategy.zero >= level else 1 for level in (3, 2, 1)]
    numbers = ranks.numbers - shared_out
    width = 2 if master and strategy.zero < 3 else 4
    wide = 4 * (optimizer.value + (master and strategy.zero < 3))
    gradients = numbers * width / shares[1]
    held = numbers * (width / shares[0] + wide / shares[2])
    passing = _passing(strategy, bound, ranks)
    # A single micro-batch has freed its activations when its gradients are complete. Only the
    # larger of activations and gradients then counts.
    alone = strategy.micro_batches == 1 and (replicas == 1 or strategy.zero >= 2)
    return held + (np.maximum(gradients, passing) if alone else gradients + passing)


def _passing(strategy: Strategy, bound: LowerBound, ranks: PipelineCut) -> npt.NDArray[np.float64]:
    """Return the lower bound of the activation bytes of each pipeline rank.

    The bound is the sum of two parts: all activations of the earlier micro-batches in flight, and
    the newest micro-batch's activations in the running block and in the blocks that ran before it.
    """
    activations, running = ranks.activations, bound.working
    if strategy.checkpoint:
        # All activations of a block that is recomputed are in memory. The last block is left out,
        # because some of its activations belong to operators after it, which are not recomputed.
        activations, again = bound.inputs, np.append(ranks.activations[:-1], 0.0)
        running = np.maximum(running, again)
    num_bytes = np.zeros(len(ranks.numbers))
    for rank in range(len(num_bytes)):
        is_of_rank = ranks.rank_of == rank
        newest = float(
            (
                np.cumsum(activations[is_of_rank]) - activations[is_of_rank] + running[is_of_rank]
            ).max()
        )
        num_bytes[rank] = (in_flight(strategy, rank) - 1) * float(
            activations[is_of_rank].sum()
        ) + newest
    return _SURE * num_bytes


def shared_out(simulation: Simulation, strategy: Strategy) -> int:
    """Return the number of parameters in the layers whose parameters the replicas shard.

    Args:
        simulation: Simulation of the model, which contains the parameters.
        strategy: Strategy whose `layers` names the sharded parameters.
    """
    names = {name for name, choice in strategy.layers if choice is Agreement.SHARD}
    if not names:
        return 0
    return sum(
        parameter.elements
        for parameter in simulation.workload.parameters
        if parameter.name in names
    )
