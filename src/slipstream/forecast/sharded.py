"""A step whose parameters are shared out over replicas: gathered block by block, just in time.

Source: Rajbhandari et al. 2020, "ZeRO", arXiv 1910.02054; Zhao et al. 2023, "PyTorch FSDP", arXiv
2304.11277, for gathering one block ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.forecast.queues import Queues

# Blocks that are gathered before they are needed.
AHEAD = 1


@dataclass(frozen=True, slots=True)
class Block:
    """A block of one micro-batch, in seconds.

    Args:
        forward: of the device.
        backward: of the device, with what is computed again.
        gather: of its parameters over the network.
        scatter: of its gradients over the network; 0 where they stay.
    """

    forward: float
    backward: float
    gather: float
    scatter: float


def run(blocks: Sequence[Block], micro_batches: int, overlap: float, queues: Queues) -> float:
    """Runs micro-batches over gathered blocks; returns when all is done, in seconds.

    Args:
        blocks: in the order of the model.
        micro_batches: each gathers all blocks twice.
        overlap: share of communication that runs beside the device's work.
        queues: on which the work is put.
    """
    hidden, visible = overlap, 1 - overlap
    ends: list[float] = [0.0]
    for batch in range(micro_batches):
        order = [(block, False) for block in blocks] + [(block, True) for block in blocks[::-1]]
        for block, backward in order:
            word = f"{'backward' if backward else 'forward'} {batch}"
            needed = ends[-1 - AHEAD] if len(ends) > AHEAD else 0.0
            gathered = queues.run("network 0", "all-gather", block.gather * hidden, needed)
            seconds = block.backward if backward else block.forward
            seconds += visible * (block.gather + (block.scatter if backward else 0.0))
            ends.append(queues.run("device 0", word, seconds, gathered))
            if backward:
                queues.run("network 0", "reduce-scatter", block.scatter * hidden, ends[-1])
    return max(queues.free("device 0"), queues.free("network 0"))
