"""One rank that times an optimizer: python -m slipstream.bench.forecast.update_rank FILE.

All ranks run optimizer updates at the same time, as in training. Rank 0 writes the bytes per second
that each rank read and wrote.
"""

# PyTorch's type stubs leave some types unspecified.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from slipstream.bench.replay.strategies import LEARNING_RATE, MOMENTUM

TENSORS, ELEMENTS = 12, 2_000_000
# parameter, gradient and momentum are read, parameter and momentum are written
BYTES_PER_ELEMENT = 5 * 4
WARMUP, ROUNDS = 2, 7


def main(output: str) -> None:
    """Time optimizer updates together with the other ranks.

    Args:
        output: Path of the file to which rank 0 writes the result.
    """
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        seconds = torch.tensor(statistics.median(update()[WARMUP:]))
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        rate = TENSORS * ELEMENTS * BYTES_PER_ELEMENT / seconds.item()
        if dist.get_rank() == 0:
            Path(output).write_text(json.dumps({"bytes_per_second": rate}))
    finally:
        dist.destroy_process_group()


def update() -> list[float]:
    """Return the seconds of each optimizer update; all ranks begin an update at the same time."""
    parameters = [torch.zeros(ELEMENTS) for _ in range(TENSORS)]
    for parameter in parameters:
        parameter.grad = torch.ones(ELEMENTS)
    optimizer = torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=MOMENTUM)
    seconds: list[float] = []
    for _ in range(WARMUP + ROUNDS):
        dist.barrier()
        start = time.perf_counter()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    return seconds


if __name__ == "__main__":
    main(sys.argv[1])
