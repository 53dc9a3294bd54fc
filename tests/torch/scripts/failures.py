"""What goes wrong is an error on every rank, in time, that says what and who.

torchrun --nproc-per-node 2 failures.py
"""

import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from slipstream.errors import (
    AbortedError,
    MismatchError,
    PeerError,
    PeerTimeoutError,
    UnsupportedError,
    UsageError,
)

LAST_SECONDS = 15.0


@contextmanager
def raises(kind: type[Exception], *words: str) -> Iterator[None]:
    """Check that the block soon raises this kind of error with these words."""
    started = time.monotonic()
    caught: Exception | None = None
    try:
        yield
    except kind as error:
        caught = error
    assert caught is not None, f"no {kind.__name__}"
    missing = [word for word in words if word not in str(caught)]
    assert not missing, f"{missing} not in {caught!r}"
    assert time.monotonic() - started < LAST_SECONDS


def check_wrong_calls() -> None:
    """Check that calls that are wrong by themselves fail at once, and that the group goes on."""
    with raises(UnsupportedError, "meta", "tensors on the CPU and on CUDA GPUs"):
        dist.all_reduce(torch.ones(2, device="meta"))
    with raises(UnsupportedError, "PREMUL_SUM", "AVG"):
        dist.all_reduce(torch.ones(2), op=dist._make_nccl_premul_sum(2.0))
    with raises(UsageError, "allowed"):
        dist.all_gather_into_tensor(torch.empty(7), torch.ones(2))
    check_tensors_without_memory()
    value = torch.ones(3)
    dist.all_reduce(value)
    assert value.tolist() == [float(dist.get_world_size())] * 3


def check_tensors_without_memory() -> None:
    """Check that a tensor without memory is refused, as an input, as an output and by DDP."""
    size = dist.get_world_size()
    sharded = DTensor.from_local(torch.ones(2), init_device_mesh("cpu", (size,)))
    freed = torch.ones(5)
    freed.untyped_storage().resize_(0)
    for tensor in (sharded, freed):
        with raises(UnsupportedError, type(tensor).__name__, "memory"):
            dist.broadcast(tensor, 0)
        with raises(UnsupportedError, type(tensor).__name__, "to_local"):
            dist.all_gather([tensor] * size, torch.ones(tensor.shape))
        with raises(UnsupportedError, type(tensor).__name__):
            dist.reduce_scatter(torch.ones(tensor.shape), [tensor] * size)
        with raises(UnsupportedError, type(tensor).__name__):
            dist.group.WORLD.average_encoded(tensor)
    with raises(UnsupportedError, "DTensor", "fully_shard"):
        DistributedDataParallel(fully_shard(torch.nn.Linear(4, 4)))


def check_half_wrong_call() -> None:
    """Check that no tensor is submitted if one of several is refused."""
    rank, size = dist.get_rank(), dist.get_world_size()
    good, bad = torch.ones(3, 4).t(), torch.ones(3).to(torch.float8_e4m3fn)
    group = dist.new_group()
    if rank == 0:  # on one rank only: what it had submitted would meet the others' next operation
        with raises(UnsupportedError, "float8"):
            group.allreduce_coalesced([good, bad])
        with raises(UsageError, "float8"):
            group.allgather_coalesced([[good, good] for _ in range(size)], [good, bad])
    value = torch.full((5,), float(rank))
    dist.all_reduce(value, group=group)
    assert value.tolist() == [sum(range(size))] * 5


def check_mismatch() -> None:
    """Check that ranks that pass different sizes all get an error with all sizes."""
    group = dist.new_group()
    with raises(MismatchError, "100", "101"):
        dist.all_reduce(torch.ones(100 + (dist.get_rank() == 0)), group=group)


def check_timeout() -> None:
    """Check that a rank whose peers do not come gives up after the timeout and names them."""
    group = dist.new_group(timeout=timedelta(seconds=1))
    if dist.get_rank() == 0:
        with raises(PeerTimeoutError, "rank 1"):
            dist.barrier(group=group)
    in_turn()


def check_no_time() -> None:
    """Check that an operation whose options have no timeout uses that of the group."""
    group = dist.new_group(timeout=timedelta(seconds=1))
    options = dist.AllreduceOptions()
    options.timeout = timedelta(0)
    if dist.get_rank() == 0:
        with raises(PeerTimeoutError, "rank 1"):
            group.allreduce([torch.ones(4)], options).wait()
    in_turn()


def check_future() -> None:
    """Check that a failed operation fails its future and releases its tensor."""
    group = dist.new_group(timeout=timedelta(seconds=1))
    if dist.get_rank() == 0:
        tensor = torch.ones(4)
        lives = weakref.ref(tensor)
        future = dist.all_reduce(tensor, group=group, async_op=True).get_future()
        with raises(RuntimeError, "timeout"):
            future.wait()
        del tensor, future
        deadline = time.monotonic() + LAST_SECONDS
        while lives() is not None:  # the thread that completed the future may not be done with it
            assert time.monotonic() < deadline, "a failed operation still holds its tensor"
            gc.collect()  # the error's traceback holds all that the call held
    in_turn()


class AlarmError(Exception):
    """What Ctrl-C would be: it ends a wait from outside."""


def interrupt(call: Callable[[], object]) -> None:
    """Make a call that blocks until a signal ends it."""

    def ring(number: int, frame: object) -> None:
        raise AlarmError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    with raises(AlarmError):
        call()
    signal.signal(signal.SIGALRM, before)
    gc.collect()  # the error's traceback holds all that the call held


def check_interrupted_barrier() -> None:
    """Check that data that arrive after an interrupted wait go into no other tensor."""
    group = dist.new_group()
    if dist.get_rank() == 0:
        interrupt(group.monitored_barrier)
        others = [torch.full((1,), 7, dtype=torch.uint8) for _ in range(1000)]
    in_turn()
    if dist.get_rank() != 0:
        with raises(PeerTimeoutError, "monitoredBarrier"):
            group.monitored_barrier(timedelta(seconds=1))
    in_turn()
    if dist.get_rank() == 0:
        assert all(each.item() == 7 for each in others)


def check_interrupted_sum() -> None:
    """Check that the memory of a synchronous sum lives on after its wait was interrupted."""
    group = dist.new_group()
    if dist.get_rank() == 0:
        interrupt(lambda: dist.all_reduce(torch.ones(16), group=group))
        others = [torch.full((16,), 7.0) for _ in range(1000)]
    in_turn()
    if dist.get_rank() != 0:
        dist.all_reduce(torch.ones(16), group=group)
    in_turn()
    if dist.get_rank() == 0:
        assert all(each.eq(7).all() for each in others)


def check_finished_work() -> None:
    """Check that the work of a synchronous call is complete and has no results."""
    options = dist.AllreduceOptions()
    options.asyncOp = False
    value = torch.ones(4)
    work = dist.group.WORLD.allreduce([value], options)
    assert work.is_completed()
    assert work.is_success()
    assert work.wait()
    assert value.tolist() == [float(dist.get_world_size())] * 4
    for ask in (work.result, work.get_future):
        with raises(UsageError, "output tensors", "asyncOp"):
            ask()


def check_interrupted_sparse_sum() -> None:
    """Check that the memory for gathered sparse tensors lives on after an interrupted wait."""
    rank, size = dist.get_rank(), dist.get_world_size()
    group = dist.new_group(timeout=timedelta(seconds=2))
    mine = torch.ones([1] * 60).to_sparse()
    if rank == 0:
        interrupt(lambda: dist.all_reduce(mine, group=group))
        tensors = [each for each in gc.get_objects() if type(each) is torch.Tensor]
        assert any(each.shape == (size * 62,) for each in tensors)  # two counts and 60 lengths
        del tensors
    in_turn()
    if rank != 0:
        with raises(PeerError):
            dist.all_reduce(mine, group=group)
    in_turn()


def check_abort() -> None:
    """Another thread ends an operation that waits."""
    group = dist.new_group()
    if dist.get_rank() == 0:
        work = dist.all_reduce(torch.ones(4), group=group, async_op=True)
        thread = threading.Thread(target=group.abort)
        with raises(AbortedError):
            thread.start()
            work.wait()
        thread.join()
    in_turn()


def check_failed_gradients() -> None:
    """DDP raises the error of its gradients as it is, hooks or no."""
    for hook in (None, default_hooks.fp16_compress_hook):
        group = dist.new_group()
        model = DistributedDataParallel(torch.nn.Linear(4, 4), process_group=group)
        if hook is not None:
            model.register_comm_hook(group, hook)
        model(torch.ones(2, 4)).sum().backward()
        in_turn()
        group.abort()
        with raises(AbortedError, "abort() was called"):
            model(torch.ones(2, 4)).sum().backward()
        in_turn()


def check_dead_rank() -> None:
    """Check that the others get an error if a rank dies in the middle of an operation."""
    last = dist.get_world_size() - 1
    if dist.get_rank() == last:
        os._exit(0)
    with raises(PeerError, f"rank {last}"):
        dist.all_reduce(torch.ones(100000))


def in_turn() -> None:
    """Prevent ranks that have nothing to wait for from running ahead."""
    dist.barrier()


def main() -> None:
    dist.init_process_group(os.environ.get("BACKEND", "slipstream"))
    checks: list[Callable[[], None]] = [
        check_wrong_calls,
        check_half_wrong_call,
        check_mismatch,
        check_timeout,
        check_no_time,
        check_future,
        check_interrupted_barrier,
        check_interrupted_sum,
        check_finished_work,
        check_interrupted_sparse_sum,
        check_abort,
        check_failed_gradients,
        check_dead_rank,
    ]
    for check in checks:
        check()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
