"""Wrong calls and ranks that disagree: everybody hears of it, and the job goes on.

slipstream run -n 2 hvd_errors.py
"""

import os
import time
import warnings
from collections.abc import Callable

os.environ.setdefault("SLIPSTREAM_JOB_KEY", "a key for these tests")

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode

import slipstream.horovod.torch as hvd
from slipstream.errors import UnsupportedError


def fails(call: Callable[[], object], *texts: str) -> None:
    with pytest.raises(hvd.HorovodInternalError) as error:
        call()
    for text in texts:
        assert text in str(error.value), str(error.value)


def check_disagreement() -> None:
    rank = hvd.rank()
    size = 3 + rank % 2
    fails(lambda: hvd.allreduce(torch.ones(size), name="lengths"), "'allreduce.lengths'", "rank 1")
    dtype = torch.float32 if rank % 2 else torch.int32
    fails(lambda: hvd.allreduce(torch.ones(3, dtype=dtype), name="types"), "int32", "float32")
    factor = 1.0 + rank % 2
    fails(lambda: hvd.allreduce(torch.ones(3), name="factors", prescale_factor=factor))
    fails(lambda: hvd.allgather(torch.ones(2, 3 + rank % 2), name="widths"))
    fails(lambda: hvd.broadcast(torch.ones(2), rank % 2, name="roots"), "root")
    fails(lambda: hvd.alltoall(torch.ones(hvd.size(), 1 + rank % 2), name="columns"))
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def check_groups() -> None:
    """Check that a group fails as a whole, and once."""
    size = 3 + hvd.rank() % 2
    tensors = [torch.ones(size), torch.ones(size, 2)]
    fails(lambda: hvd.grouped_allreduce(tensors, name="group"), "rank 1")
    for _ in range(2):
        same = hvd.grouped_allreduce([torch.ones(2), torch.ones(3)], op=hvd.Sum, name="group")
        assert (same[1] == hvd.size()).all()


def check_sparse_groups() -> None:
    """Check that the values, which take longer, are awaited even if the indices fail."""
    width = 1 << 21
    shape, place = ([3, 2, width], [[1], [0]]) if hvd.rank() % 2 else ([3, width], [[1]])
    odd = torch.sparse_coo_tensor(torch.tensor(place), torch.ones(1, width), shape)
    even = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.ones(1, width), [3, width])
    longer = torch.sparse_coo_tensor(torch.tensor([[hvd.rank()]]), torch.ones(1), [hvd.rank() + 1])
    handle = hvd.sparse_allreduce_async(longer, "longer", hvd.Sum)
    if hvd.rank() + 1 < hvd.size():  # there is no place for what the longest has
        with pytest.raises(RuntimeError, match="size is inconsistent with indices"):
            handle()
    else:
        assert handle().to_dense().tolist() == [1.0] * hvd.size()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hvd.sparse_allreduce_async(even, "quiet", hvd.Sum)()
    for _ in range(3):
        fails(hvd.sparse_allreduce_async(odd, "rows", hvd.Sum), "rows.indices")
        found = hvd.sparse_allreduce_async(even, "rows", hvd.Sum)()
        assert found.to_dense()[1].sum().item() == hvd.size() * width


def check_wrong_calls() -> None:
    if hvd.rank() == 0:  # a wrong call on one rank does not count tensors without names
        for wrong in (
            lambda: hvd.allreduce(torch.ones(4, 4).t()[:2]),
            lambda: hvd.allreduce(torch.ones(2, dtype=torch.bool)),
            lambda: hvd.allgather(torch.tensor(1.0)),
            lambda: hvd.broadcast(torch.ones(1), -1),
            lambda: hvd.reducescatter(torch.ones(4), op=hvd.Max),
            lambda: hvd.alltoall(torch.ones(4), [-1]),
        ):
            with pytest.raises(ValueError):  # noqa: PT011  one of several
                wrong()
    size = hvd.size()
    assert hvd.allreduce(torch.ones(1), op=1).item() == size
    for call, text in (
        (lambda: hvd.allreduce(torch.ones(4, 4).t()[:2]), "contiguous"),
        (lambda: hvd.allreduce(torch.ones(2, dtype=torch.complex64)), "is not supported"),
        (lambda: hvd.allreduce(torch.ones(2, dtype=torch.bool)), "is not supported"),
        (lambda: hvd.allreduce(torch.ones(2), op=hvd.Sum, average=True), "supersedes average"),
        (lambda: hvd.alltoall(torch.ones(size + 1)), "not an even multiple of the number of"),
        (
            lambda: hvd.alltoall(torch.ones(size - 1), [1] * size),
            "Sum of splits entries is greater",
        ),
        (lambda: hvd.alltoall(torch.ones(size), torch.ones(size)), "32-bit integer elements"),
        (lambda: hvd.alltoall(torch.ones(size), [1]), "does not equal number of workers"),
        (lambda: hvd.allgather(torch.tensor(1.0)), "rank-zero tensor"),
        (lambda: hvd.broadcast(torch.ones(1), size), "invalid root rank"),
        (lambda: hvd.reducescatter(torch.ones(4), op=hvd.Max), "only supports AVERAGE and SUM"),
        (lambda: hvd.broadcast_parameters(3, 0), "invalid params of type"),
    ):
        with pytest.raises(ValueError, match=text):
            call()
    with FakeTensorMode():
        fake = torch.ones(2)
    freed = torch.ones(2)
    freed.untyped_storage().resize_(0)
    for tensor in (fake, freed):
        with pytest.raises(UnsupportedError, match="without memory of its own"):
            hvd.allreduce(tensor)
    with pytest.raises(ValueError, match="MPI is not enabled"):
        hvd.mpi_threads_supported()
    for call in (
        lambda: hvd.reducescatter(torch.ones(size), op=hvd.Adasum),
        lambda: hvd.reducescatter(torch.tensor(1.0)),
    ):
        fails(call)


def check_names() -> None:
    """Check that a name is refused while its tensor is in use, even if that is done already."""
    for length in (1, 1000000):
        name = f"twice {length}"
        hvd.allreduce_async(torch.ones(length), name=name)
        time.sleep(0.01)
        with pytest.raises(ValueError, match="same name as another tensor"):
            hvd.allreduce_async(torch.ones(length), name=name)
        hvd.barrier()
    hvd.allreduce_async(torch.ones(1), name="before join")
    hvd.join()
    hvd.allreduce(torch.ones(1), name="before join")


def check_before_init() -> None:
    for call in (hvd.rank, hvd.size, hvd.local_rank, hvd.cross_size, hvd.is_homogeneous):
        with pytest.raises(ValueError, match=r"has not been initialized; use hvd\.init"):
            call()
    for kind in (ValueError, hvd.HorovodInternalError):
        with pytest.raises(kind, match=r"use hvd\.init"):
            hvd.allreduce(torch.ones(1))
    os.environ["HOROVOD_SIZE"] = "77"  # as a launcher of Horovod's would
    with pytest.raises(RuntimeError, match=r"slipstream\.horovod\.run"):
        hvd.init()
    os.environ["HOROVOD_SIZE"] = os.environ["WORLD_SIZE"]
    for call in (
        hvd.global_process_set.size,
        hvd.global_process_set.rank,
        hvd.global_process_set.included,
    ):
        with pytest.raises(ValueError, match=r"use hvd\.init"):
            call()


def check_stall() -> None:
    """Check that the job ends if a rank is late for longer than the limit."""
    os.environ["HOROVOD_STALL_CHECK_TIME_SECONDS"] = "1"
    os.environ["HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"] = "2"
    hvd.init()
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if hvd.rank() == 0:
        fails(lambda: hvd.allreduce(torch.ones(1), name="alone"), "'allreduce.alone'", "SHUTDOWN")
        store.set("failed", "1")
    else:
        store.wait(["failed"])
    fails(hvd.barrier)
    hvd.shutdown()


def main() -> None:
    check_before_init()
    hvd.init()
    check_disagreement()
    check_groups()
    check_sparse_groups()
    check_wrong_calls()
    check_names()
    hvd.shutdown()
    check_before_init()
    check_stall()


main()
