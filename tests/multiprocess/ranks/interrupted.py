"""Rank 0 waits for the other rank, which does nothing, in the call that the argument names."""

import os
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist

from slipstream import comm

LONG_SECONDS = 600.0


def wait_in(call: Callable[[], object]) -> None:
    """Call it on rank 0 only; the other rank sleeps."""
    if os.environ["RANK"] == "0":
        print("waits", flush=True)
        call()
    time.sleep(LONG_SECONDS)


def numpy_call(call: Callable[[], object]) -> Callable[[], None]:
    """Return a program that makes a call of slipstream.comm."""

    def program() -> None:
        comm.init()
        wait_in(call)

    return program


def init() -> None:
    """Wait for ranks that were never started."""
    print("waits", flush=True)
    comm.init()


def elastic_init() -> None:
    """Wait for the other members of the first epoch."""
    from slipstream.comm import elastic

    print("waits", flush=True)
    elastic.run(lambda _: None)(elastic.ObjectState(step=0))


def torch_call(call: Callable[[], object]) -> Callable[[], None]:
    """Return a program that makes a call of torch.distributed."""

    def program() -> None:
        import slipstream.torch  # noqa: F401  (registers the backend)

        dist.init_process_group("slipstream")
        wait_in(call)

    return program


def horovod_call(name: str) -> Callable[[], None]:
    """Return a program that makes a call of Horovod's interface."""

    def program() -> None:
        import slipstream.horovod.torch as hvd

        hvd.init()
        calls = {
            "allreduce": lambda: hvd.allreduce(torch.ones(8)),
            "join": hvd.join,
            "broadcast_object": lambda: hvd.broadcast_object({}, 1),
        }
        wait_in(calls[name])

    return program


def overlap() -> None:
    """Wait for the other rank's gradients in the step of the optimizer."""
    import slipstream.torch

    dist.init_process_group("slipstream")
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    slipstream.torch.overlap(model, optimizer)

    def step() -> None:
        model(torch.ones(1, 8)).sum().backward()
        optimizer.step()

    wait_in(step)


def checkpoint(waits_in_save: bool) -> Callable[[], None]:
    """Return a program that saves or restores."""

    def program() -> None:
        from slipstream.train.checkpoint import Checkpointer

        comm.init()
        checkpointer = Checkpointer(tempfile.mkdtemp())
        state = {"weights": torch.ones(8)}

        def save() -> None:
            checkpointer.save(1, state)
            checkpointer.wait()

        wait_in(save if waits_in_save else lambda: checkpointer.restore(state))

    return program


def later(call: Callable[[], comm.Handle]) -> Callable[[], object]:
    """Return a call that waits for its handle."""
    return lambda: call().wait()


PROGRAMS: dict[str, Callable[[], None]] = {
    "init": init,
    "elastic_init": elastic_init,
    "allreduce": numpy_call(lambda: comm.allreduce(np.ones(8))),
    "large_allreduce": numpy_call(lambda: comm.allreduce(np.ones(4_000_000))),
    "barrier": numpy_call(lambda: comm.barrier()),
    "receive": numpy_call(lambda: comm.recv(np.empty(8), 1)),
    "group": numpy_call(lambda: comm.group([0, 1])),
    "handle": numpy_call(later(lambda: comm.allreduce(np.ones(8), async_op=True))),
    "torch_allreduce": torch_call(lambda: dist.all_reduce(torch.ones(8))),
    "torch_barrier": torch_call(lambda: dist.barrier()),
    "torch_objects": torch_call(lambda: dist.all_gather_object([None, None], 1)),
    "horovod_allreduce": horovod_call("allreduce"),
    "horovod_join": horovod_call("join"),
    "horovod_objects": horovod_call("broadcast_object"),
    "overlap": overlap,
    "checkpoint_save": checkpoint(waits_in_save=True),
    "checkpoint_restore": checkpoint(waits_in_save=False),
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
