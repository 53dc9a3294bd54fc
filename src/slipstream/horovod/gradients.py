"""Gradients of the collectives, for the differentiable functions of a framework.

- allreduce: the gradient is allreduced with the same reduction and the same factors.
- broadcast: the root gets the average of all gradients, and other ranks get zeros.
- allgather: each rank gets its own rows of the average of all gradients (`own_rows`).
- alltoall: each rank sends the gradient of the received rows back to the ranks from which the rows
  came.
- reducescatter: the ranks' parts of the gradient are multiplied by `reducescatter_factor` and
  gathered.
"""

from __future__ import annotations

import numpy as np

from slipstream.horovod import collectives
from slipstream.horovod.common.process_sets import ProcessSet
from slipstream.horovod.job import queue_of
from slipstream.horovod.reductions import Average, Reduction


def own_rows(num_rows: int, process_set: ProcessSet) -> tuple[int, int]:
    """Return the interval (begin, end) of this rank's rows in a gathered tensor; blocks.

    Args:
        num_rows: Number of rows that this rank passed to the allgather.
        process_set: Process set whose ranks took part.
    """
    queue = queue_of(process_set)
    own_count = queue.arrays.from_numpy(np.array([num_rows], dtype=np.int64))
    gathered = collectives.allgather(own_count, None, process_set).wait()
    begin = int(queue.arrays.to_numpy(gathered)[: queue.group.rank].sum())
    return begin, begin + num_rows


def reducescatter_factor(
    op: Reduction, factors: tuple[float, float], process_set: ProcessSet
) -> float:
    """Return the number by which the backward pass of a reducescatter multiplies the gradient.

    The number is the product of both `factors`, multiplied by the number of ranks if `op` is a sum.
    """
    size = queue_of(process_set).group.size
    return factors[0] * factors[1] * (1 if op == Average else size)
