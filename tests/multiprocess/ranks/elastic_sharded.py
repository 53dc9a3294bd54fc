"""Elastic training of sharded state, whose result tells if a step is lost or applied twice.

`elastic_sharded.py MODE STEPS COPIES [FOLDER]`: all ranks use the same samples, so the result does
not depend on their number. MODE is fsdp, zero or single (no ranks, for the reference). Checkpoints
are saved to FOLDER after every tenth step.
"""

import json
import logging
import os
import sys
import time
from typing import Any

import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor

MODE, STEPS, COPIES = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
FOLDER = sys.argv[4] if len(sys.argv) > 4 else ""

torch.set_default_dtype(torch.float64)


def made(sharded: bool) -> tuple[Any, Any, Any]:
    """Return a model, how it is called, and its optimizer; 33 rows do not divide evenly."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 33), torch.nn.ReLU(), torch.nn.Linear(33, 4))
    forward: Any = model
    if sharded and MODE == "fsdp":
        fully_shard(model)
    if sharded and MODE == "zero":
        forward = torch.nn.parallel.DistributedDataParallel(model)
        return model, forward, ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    return model, forward, torch.optim.Adam(model.parameters(), lr=0.1)


def step(number: int, forward: Any, optimizer: Any) -> None:
    generator = torch.Generator().manual_seed(number)
    samples = torch.randn(8, 16, generator=generator)
    labels = torch.randint(0, 4, (8,), generator=generator)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(forward(samples), labels).backward()
    optimizer.step()


def report(**values: object) -> None:
    print(json.dumps({"pid": os.getpid()} | values), flush=True)


def digest(model: Any) -> list[float]:
    whole = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    return [float(p.detach().sum()) for p in whole]


def train(state: Any) -> None:
    from slipstream.comm import elastic
    from slipstream.train.checkpoint import Checkpointer

    model, forward, optimizer = made(sharded=True)
    checkpointer = Checkpointer(FOLDER, timeout_seconds=5) if FOLDER else None
    state.attach(model=model, optimizer=optimizer, checkpointer=checkpointer)
    epoch = elastic.session().epoch
    report(epoch=epoch.number, step=state.step, size=len(epoch.members))
    while state.step < STEPS:
        step(state.step, forward, optimizer)
        state.step += 1
        if checkpointer is not None and state.step % 10 == 0:
            checkpointer.save(state.step, state.whole())
        state.commit()
        time.sleep(0.01)
    if checkpointer is not None:
        checkpointer.wait()
    report(done=STEPS, digest=digest(model))


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    if MODE == "single":
        model, forward, optimizer = made(sharded=False)
        for number in range(STEPS):
            step(number, forward, optimizer)
        report(done=STEPS, digest=digest(model))
    else:
        from slipstream.train import elastic

        elastic.init()
        elastic.run(train)(elastic.ShardedState(copies=COPIES, step=0))


if __name__ == "__main__":
    main()
