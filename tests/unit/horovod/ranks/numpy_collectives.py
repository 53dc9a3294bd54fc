"""The collectives of Horovod on NumPy's arrays, in a process that never imports torch.

slipstream run -n 2 numpy_collectives.py
"""

import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from numpy_arrays import NumpyArrays

from slipstream.horovod import collectives, gradients
from slipstream.horovod.collectives import barrier, join
from slipstream.horovod.common.basics import add_process_set, rank, size
from slipstream.horovod.common.process_sets import global_process_set as everybody
from slipstream.horovod.init import init
from slipstream.horovod.job import leave_job
from slipstream.horovod.objects import allgather_object, broadcast_object
from slipstream.horovod.reductions import Adasum, Average, Max, Reduction, Sum
from slipstream.horovod.submission import poll, synchronize

NO_FACTORS = (1.0, 1.0)


def own(*shape: int, dtype: str = "float32") -> NDArray[Any]:
    """Return the array of this rank, which has its rank + 1 everywhere."""
    return np.full(shape, rank() + 1, dtype)


def allreduced(tensor: NDArray[Any], op: Reduction, factors: tuple[float, float]) -> NDArray[Any]:
    handle = collectives.allreduce(tensor, None, op, factors, everybody, in_place=False)
    return synchronize(handle)


def check_allreduce() -> None:
    total = sum(range(1, size() + 1))
    for dtype in ("int8", "int64", "float16", "float64"):
        reduced = allreduced(own(3, 2, dtype=dtype), Sum, NO_FACTORS)
        assert reduced.dtype == dtype
        assert (reduced == total).all()
    assert (allreduced(own(3), Average, NO_FACTORS) == total / size()).all()
    assert (allreduced(own(3), Max, (2.0, 0.5)) == size()).all()
    assert (allreduced(own(2, dtype="int32"), Average, (1.0, 4.0)) == 4 * total // size()).all()
    target = own(4)
    handle = collectives.allreduce(target, "in place", Sum, NO_FACTORS, everybody, in_place=True)
    assert handle.wait() is target
    assert (target == total).all()
    one_hot = np.zeros(size())
    one_hot[rank()] = 3.0
    assert (allreduced(one_hot, Adasum, NO_FACTORS) == 3.0).all()


def check_groups() -> None:
    total = sum(range(1, size() + 1))
    tensors = [own(3), own(2, 2), own(5, dtype="int32")]
    handle = collectives.grouped_allreduce(
        tensors, None, Sum, NO_FACTORS, everybody, in_place=False
    )
    results = handle.wait()
    assert [result.shape for result in results] == [(3,), (2, 2), (5,)]
    assert all((result == total).all() for result in results)
    assert all((tensor == rank() + 1).all() for tensor in tensors)
    gathered = collectives.grouped_allgather([own(rank() + 1), own(1, 2)], None, everybody).wait()
    assert [part.shape for part in gathered] == [(total,), (size(), 2)]
    parts = collectives.grouped_reducescatter(
        [own(size()), own(size(), 3)], None, Sum, NO_FACTORS, everybody
    ).wait()
    assert [part.tolist() for part in parts] == [[total], [[total] * 3]]


def check_rows() -> None:
    total = sum(range(1, size() + 1))
    gathered = collectives.allgather(own(rank() + 1, 2), None, everybody).wait()
    assert gathered[:, 0].tolist() == [r + 1 for r in range(size()) for _ in range(r + 1)]
    begin, end = gradients.own_rows(rank() + 1, everybody)
    assert (gathered[begin:end] == rank() + 1).all()
    rows = np.repeat(np.arange(size()), rank() + 1).astype(np.float32)  # rank + 1 rows for each
    received, counts = collectives.alltoall(rows, [rank() + 1] * size(), None, everybody).wait()
    assert (received == rank()).all()
    assert counts.dtype == np.int32
    assert counts.tolist() == [r + 1 for r in range(size())]
    odd = collectives.reducescatter(own(size() + 1), None, Average, (2.0, 1.0), everybody).wait()
    assert odd.tolist() == [2 * total / size()] * (2 if rank() == 0 else 1)


def check_broadcasts_and_objects() -> None:
    for root in range(size()):
        tensor = own(2)
        sent = collectives.broadcast(tensor, root, None, everybody, in_place=False).wait()
        assert (sent == root + 1).all()
        assert (tensor == rank() + 1).all()
        handle = collectives.broadcast(tensor, root, "weights", everybody, in_place=True)
        assert handle.wait() is tensor
        assert poll(handle)
        assert (tensor == root + 1).all()
    assert broadcast_object({"from": rank()}, root_rank=1) == {"from": 1}
    assert allgather_object("x" * rank()) == ["x" * r for r in range(size())]


def check_errors() -> None:
    """Check that a wrong call on one rank does not count a tensor without a name."""
    if rank() == 0:
        for wrong in (
            lambda: allreduced(own(2, dtype="complex64"), Sum, NO_FACTORS),
            lambda: allreduced(own(2, dtype="bool"), Average, NO_FACTORS),
            lambda: collectives.allgather(np.array(1.0), None, everybody),
            lambda: collectives.broadcast(own(1), size(), None, everybody, in_place=False),
            lambda: collectives.alltoall(own(1), [2] * size(), None, everybody),
            lambda: collectives.reducescatter(own(2), None, Max, NO_FACTORS, everybody),
        ):
            with pytest.raises(ValueError):  # noqa: PT011  one of several
                wrong()
    assert (allreduced(own(2), Average, NO_FACTORS) == (size() + 1) / 2).all()


def check_process_set_and_join() -> None:
    alone = add_process_set([1])
    if alone.included():
        result = collectives.allreduce(own(2), None, Sum, NO_FACTORS, alone, in_place=False)
        assert (result.wait() == 2).all()
        barrier(alone)
    if rank() == 0:  # has one batch more; the others count as zeros
        assert (allreduced(own(2), Sum, NO_FACTORS) == 1).all()
    join()
    barrier()


def main() -> None:
    init(NumpyArrays(), process_sets="dynamic")
    check_allreduce()
    check_groups()
    check_rows()
    check_broadcasts_and_objects()
    check_errors()
    check_process_set_and_join()
    leave_job()
    assert "torch" not in sys.modules


main()
