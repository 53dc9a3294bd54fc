"""Pipeline stages of a model: the stage of each operator, and the bytes between two stages."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from slipstream.forecast.simulate.compute import FloatArray, Work, blend
from slipstream.forecast.work.stages import cuts
from slipstream.forecast.work.workload import TrainingPhase, Workload

# Number of FLOPs that take a device about as long as moving a byte, for estimates of the work of a
# block. The actual number is 17 for a V100 in fp32 and 295 for an H100 in bf16
# (hardware/data/devices.toml). In pipelines on 8 devices, 30 instead of 100 makes the mean step
# faster: by 9 % for ResNet-50, 6 % for VGG16 and 0.1 % for GPT-2. With 300 it is 0.1 % faster, 12 %
# slower and 0.2 % slower.
_FLOPS_PER_BYTE = 100.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placement:
    """Pipeline stages of the operators of a model.

    Args:
        stages: Number of stages.
        ranks: Number of pipeline ranks; stage i runs on rank i modulo `ranks`.
        stage_of: Index of the stage of each operator.
        crossing: Bytes that each stage sends to the next stage for one micro-batch.
    """

    stages: int
    ranks: int
    stage_of: npt.NDArray[np.int64]
    crossing: FloatArray

    @property
    def rank_of(self) -> npt.NDArray[np.int64]:
        """Pipeline rank of each operator."""
        return self.stage_of % self.ranks

    def between(self, other: Placement, share: float) -> Placement:
        """Return the placement at another micro-batch size, by linear interpolation.

        Args:
            other: Placement at a larger micro-batch size.
            share: Position between the micro-batch sizes of this placement (0) and of `other` (1);
                a position above 1 extrapolates.
        """
        return replace(self, crossing=blend(self.crossing, other.crossing, share))


def unstaged(operators: int) -> Placement:
    """Return the placement of a model without a pipeline.

    Args:
        operators: Number of operators of the model.
    """
    stage_of = np.zeros(operators, dtype=np.int64)
    return Placement(stages=1, ranks=1, stage_of=stage_of, crossing=np.zeros(1))


def placed(
    workload: Workload,
    work: Work,
    block_of: npt.NDArray[np.int64],
    *,
    pipeline: int,
    virtual: int,
    even: bool,
) -> Placement:
    """Return the placement of a model on pipeline ranks.

    Args:
        workload: Workload of one micro-batch of the model.
        work: Sizes and FLOPs of the operators of the model.
        block_of: Index of the block of each operator; stages never divide a block.
        pipeline: Number of pipeline ranks; at most one rank per block is used.
        virtual: Number of stages that each rank runs in turns.
        even: Whether stages have equal numbers of blocks, as in most frameworks; otherwise, stages
            have about equal work.
    """
    blocks = int(block_of.max()) + 1
    stages = min(pipeline * virtual, blocks)
    if stages == 1:
        return unstaged(len(workload.operators))
    if even:
        stage_of = block_of * stages // blocks
    else:
        flops = np.array([operator.flops for operator in workload.operators])
        weights = np.zeros(blocks)
        np.add.at(weights, block_of, np.maximum(flops, work.bytes * _FLOPS_PER_BYTE))
        stage_of = np.array(cuts(weights.tolist(), stages))[block_of]
    return Placement(
        stages=stages,
        ranks=min(pipeline, stages),
        stage_of=stage_of,
        crossing=_crossing(workload, stage_of.tolist(), stages),
    )


def _crossing(workload: Workload, stage_of: list[int], stages: int) -> FloatArray:
    """Return the bytes that each stage sends: its largest tensor that the next stage reads."""
    crossing = np.zeros(stages)
    born: dict[int, int] = {}
    for operator, stage in zip(workload.operators, stage_of, strict=True):
        if operator.phase is TrainingPhase.BACKWARD:
            break
        for value in operator.reads:
            if born.get(value, stage) == stage - 1:
                size = float(workload.values[value].num_bytes)
                crossing[stage - 1] = max(crossing[stage - 1], size)
        for value in operator.writes:
            born[value] = stage
    return crossing
