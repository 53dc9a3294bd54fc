"""A step whose parameters are shared out over replicas: gathered block by block, just in time.

Source: Rajbhandari et al. 2020, "ZeRO", arXiv 1910.02054; Zhao et al. 2023, "PyTorch FSDP", arXiv
2304.11277, for gathering one block ahead, before the last block's gradients are sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slipstream.forecast.simulate.resources import Resources

# Micro-batches after which all others take as long as the last one.
_STEADY = 4


@dataclass(frozen=True, slots=True)
class ShardedBlock:
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


def run(
    blocks: Sequence[ShardedBlock], micro_batches: int, overlap: float, queues: Resources
) -> float:
    """Runs micro-batches over gathered blocks; returns when all is done, in seconds.

    Args:
        blocks: in the order of the model.
        micro_batches: each gathers all blocks twice; after a few, the rest are taken to be alike
            and are not put on the queues.
        overlap: share of communication that runs beside the device's work.
        queues: on which the work is put.
    """
    passes = list(_passes(blocks, min(micro_batches, _STEADY)))
    visible = 1 - overlap
    gathered = queues.run("network 0", "all-gather", passes[0][1].gather * overlap)
    ends: list[float] = [0.0]
    halts: list[float] = []
    for index, (word, block, backward) in enumerate(passes):
        here = gathered
        if index + 1 < len(passes):
            # The next block is gathered while this one is computed.
            seconds = passes[index + 1][1].gather * overlap
            gathered = queues.run("network 0", "all-gather", seconds, max(ends[-1], here))
        seconds = block.backward if backward else block.forward
        seconds += visible * (block.gather + (block.scatter if backward else 0.0))
        ends.append(queues.run("device 0", word, seconds, here))
        if backward:
            queues.run("network 0", "reduce-scatter", block.scatter * overlap, ends[-1])
        if (index + 1) % (2 * len(blocks)) == 0:
            halts.append(ends[-1])
    end = max(queues.free("device 0"), queues.free("network 0"))
    rest = micro_batches - len(halts)
    return end + (rest * (halts[-1] - halts[-2]) if rest else 0.0)


def _passes(
    blocks: Sequence[ShardedBlock], micro_batches: int
) -> Iterator[tuple[str, ShardedBlock, bool]]:
    for batch in range(micro_batches):
        for block in blocks:
            yield f"forward {batch}", block, False
        for block in reversed(blocks):
            yield f"backward {batch}", block, True
