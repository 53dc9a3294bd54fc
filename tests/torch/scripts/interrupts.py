"""Ctrl-C arrives as KeyboardInterrupt, whatever the rank waits for.

torchrun --nproc-per-node 2 interrupts.py
"""

import _thread
import operator
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from slipstream.errors import AbortedError

HARD_TO_MISS_SECONDS = 0.3
WIDTH = 600  # of layers too large to share a bucket of 1 MB

Hook = Callable[[DistributedDataParallel], None]


@contextmanager
def interrupted() -> Iterator[None]:
    """Check that the block raises KeyboardInterrupt."""
    try:
        yield
    except KeyboardInterrupt:
        return
    raise AssertionError("no KeyboardInterrupt")


def fp16(model: DistributedDataParallel) -> None:
    model.register_comm_hook(model.process_group, default_hooks.fp16_compress_hook)


def power_sgd(model: DistributedDataParallel) -> None:
    state = powerSGD_hook.PowerSGDState(model.process_group, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def layers(hook: Hook | None, group: Any) -> DistributedDataParallel:
    model = DistributedDataParallel(
        torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(3)]),
        process_group=group,
        bucket_cap_mb=1,
    )
    if hook is not None:
        hook(model)
    return model


def backward(model: torch.nn.Module) -> None:
    model(torch.full((2, WIDTH), 1.0 + dist.get_rank())).square().mean().backward()


def check_gradients_that_do_not_come(store: dist.Store) -> None:
    """Interrupt a rank whose peer never sends its gradients, with hooks and without."""
    for number, hook in enumerate((None, fp16, power_sgd)):
        group = dist.new_group()
        model = layers(hook, group)
        for _ in range(2):  # before its second pass DDP exchanges more than gradients
            backward(model)
        if dist.get_rank() == 0:
            store.wait([f"interrupted/{number}"])
        else:
            threading.Timer(HARD_TO_MISS_SECONDS, os.kill, (os.getpid(), signal.SIGINT)).start()
            with interrupted():
                while True:
                    backward(model)
            store.set(f"interrupted/{number}", "")
        dist.barrier()
        group.abort()


def check_interrupt_before_error() -> None:
    """Check that the interrupt is raised, and not the error that it caused in other ranks."""
    group = dist.new_group()
    group.abort()
    work = None
    try:
        work = dist.all_reduce(torch.ones(4), group=group, async_op=True)
        work.wait()
    except AbortedError:
        assert work is not None, "the submission failed in place of the operation"
    in_c = operator.methodcaller("__call__")  # Python code between the two would be interrupted
    with interrupted():
        list(map(in_c, (_thread.interrupt_main, work._handles[0].wait)))


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    dist.init_process_group(os.environ.get("BACKEND", "slipstream"))
    store = dist.distributed_c10d._get_default_store()
    check_gradients_that_do_not_come(store)
    check_interrupt_before_error()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
