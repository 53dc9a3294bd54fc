"""One replica of training with torchft's manager and optimizer over gloo.

The manager's allreduce averages the gradients, because torchft's DistributedDataParallel (0.2.0)
raises an AssertionError on the survivors (`assert fut._fut`) if a replica dies in an allreduce.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch
import training
from torch.distributed import TCPStore
from torchft import Manager, Optimizer, ProcessGroupGloo


def main() -> None:
    """Train until the benchmark ends the job; a replica that joins gets the state from a peer."""
    model = training.make_model()
    inner = training.make_optimizer(model)

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": inner.state_dict()},
        min_replica_size=1,
        timeout=timedelta(seconds=30),
        replica_id=f"replica_{os.environ['RECOVERY_SLOT']}",
        rank=0,
        world_size=1,
        store_addr="localhost",
        store_port=store.port,
    )
    log = training.StepLog()
    optimizer = Optimizer(manager, inner)

    def average() -> None:
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        flat = torch.cat([each.flatten() for each in gradients])
        manager.allreduce(flat).wait()
        parts = flat.split([each.numel() for each in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    done = manager.current_step()
    while done < training.STEPS:
        training.train_one_step(model, optimizer, average)
        if manager.current_step() == done:  # the step was not committed
            continue
        done = manager.current_step()
        rank = manager.participating_rank()
        if rank is not None:
            log.add(done, manager._quorum_id, rank, manager.num_participants())


main()
