"""Elastic training in PyTorch whose result tells if a step is lost or applied twice.

`elastic_torch.py MODE STEPS [EVERY DIES]`: all ranks use the same samples, so the result does not
depend on their number. MODE is ddp, overlap, hvd or single (no ranks, for the reference). The state
is committed after every EVERY steps (1), and rank 1 dies in the backward pass of step DIES.
"""

import json
import logging
import os
import signal
import sys
import time
from typing import Any

import torch

MODE, STEPS = sys.argv[1], int(sys.argv[2])
EVERY, DIES = (int(each) for each in (sys.argv[3:] or ("1", "-1")))

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
model: Any = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


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
    rank, size = dist.get_rank(), dist.get_world_size()
    report(epoch=elastic.session().epoch.number, step=state.step, size=size)
    while state.step < STEPS:
        if (state.step, rank, size) == (DIES, 1, 3):
            model[0].weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        step(state.step, wrapped)
        time.sleep(0.005)
        state.step += 1
        state.check() if state.step % EVERY else state.commit()


def die_when_the_port_is_told() -> None:
    """Let this rank die when it has told the others where the store of its second epoch is."""
    from slipstream.comm import Group

    broadcast, ports = Group.broadcast, list[object]()

    def told(group: Group, array: Any, root: int = 0, **more: Any) -> Any:
        result = broadcast(group, array, root, **more)
        if more.get("name") == "port of the store":
            ports.append(array)
        if len(ports) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    Group.broadcast = told  # type: ignore[method-assign]


def main() -> None:
    global optimizer
    logging.basicConfig(level=logging.INFO)
    if "ELASTIC_DIES_WITH_STORE" in os.environ:
        die_when_the_port_is_told()
    if MODE == "single":
        for number in range(STEPS):
            step(number, model)
    else:
        from slipstream.train import elastic

        elastic.init()
        if MODE == "hvd":
            import slipstream.horovod.torch as hvd

            optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        state = elastic.TorchState(model=model, optimizer=optimizer, step=0)
        elastic.run(train)(state)
    report(done=STEPS, digest=digest())


if __name__ == "__main__":
    main()
