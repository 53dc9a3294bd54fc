"""Elastic training in PyTorch whose result tells if a step is lost or applied twice.

`elastic_torch.py MODE STEPS`: all ranks use the same samples, so the result does not depend on
their number. MODE is ddp, overlap or single (no ranks, for the reference).
"""

import json
import logging
import os
import sys
import time
from typing import Any

import torch

MODE, STEPS = sys.argv[1], int(sys.argv[2])

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
model: Any = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def step(number: int, forward: Any) -> None:
    generator = torch.Generator().manual_seed(number)
    samples = torch.randn(8, 16, generator=generator)
    labels = torch.randint(0, 4, (8,), generator=generator)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(forward(samples), labels).backward()
    optimizer.step()


def report(**values: object) -> None:
    print(json.dumps({"pid": os.getpid()} | values), flush=True)


def digest() -> list[float]:
    return [float(p.detach().sum()) for p in model.parameters()]


def train(state: Any) -> None:
    import torch.distributed as dist

    from slipstream.comm import elastic

    wrapped = torch.nn.parallel.DistributedDataParallel(model) if MODE == "ddp" else model
    if MODE == "overlap":
        import slipstream.torch

        slipstream.torch.overlap(model, optimizer)
    report(epoch=elastic.session().epoch.number, step=state.step, size=dist.get_world_size())
    while state.step < STEPS:
        step(state.step, wrapped)
        time.sleep(0.005)
        state.step += 1
        state.commit()


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    if MODE == "single":
        for number in range(STEPS):
            step(number, model)
    else:
        from slipstream.train import elastic

        elastic.init()
        state = elastic.TorchState(model=model, optimizer=optimizer, step=0)
        elastic.run(train)(state)
    report(done=STEPS, digest=digest())


if __name__ == "__main__":
    main()
