"""Accelerate trains, saves, resumes and evaluates as it does over gloo, bit for bit.

torchrun --nproc-per-node 2 accelerate_loop.py
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.local_sgd import LocalSGD
from accelerate.state import AcceleratorState
from accelerate.utils import (
    DataLoaderConfiguration,
    DDPCommunicationHookType,
    DistributedDataParallelKwargs,
    broadcast_object_list,
    gather_object,
    set_seed,
)
from backends import same_on_both
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

from slipstream.torch import compress

ROWS = 70  # which two ranks with batches of four do not share evenly


class Loop:
    """A user's loop around an Accelerator."""

    def __init__(self, hook: DDPCommunicationHookType | None = None, **options: Any) -> None:
        AcceleratorState._reset_state(reset_partial_state=True)
        handlers = [] if hook is None else [DistributedDataParallelKwargs(comm_hook=hook)]
        set_seed(0)
        self.accelerator = Accelerator(cpu=True, kwargs_handlers=handlers, **options)
        assert self.accelerator.num_processes == dist.get_world_size()
        model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        rows = torch.randn(ROWS, 8)
        loader = DataLoader(TensorDataset(rows, rows.sum(1)), batch_size=4, shuffle=True)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        self.model, self.optimizer, self.loader, self.schedule = self.accelerator.prepare(
            model, optimizer, loader, schedule
        )

    def train(self) -> Iterator[None]:
        """Train for an epoch, and yield after each batch."""
        for rows, target in self.loader:
            with self.accelerator.accumulate(self.model):
                loss = (self.model(rows)[:, 0] - target).square().mean()
                self.accelerator.backward(loss)
                if self.accelerator.sync_gradients:
                    self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.schedule.step()
                self.optimizer.zero_grad()
            yield

    def weights(self) -> list[torch.Tensor]:
        return [each.detach().clone() for each in self.model.parameters()]


def train(**options: Any) -> list[torch.Tensor]:
    """Return the weights after an epoch."""
    loop = Loop(**options)
    for _ in loop.train():
        pass
    return loop.weights()


def resume(folder: Path) -> list[torch.Tensor]:
    """Return the weights after two epochs, the second of which ran twice, from a checkpoint."""
    loop = Loop()
    for _ in loop.train():
        pass
    loop.accelerator.save_state(folder)
    for _ in loop.train():
        pass
    once = loop.weights()
    loop.accelerator.load_state(folder)
    for _ in loop.train():
        pass
    torch.testing.assert_close(loop.weights(), once, rtol=0, atol=0)
    return once


def evaluate() -> list[Any]:
    """Return the results of gathering metrics and objects and of reductions; rows count once."""
    loop = Loop()
    accelerator, rank = loop.accelerator, loop.accelerator.process_index
    loop.model.eval()
    with torch.inference_mode():
        found = [accelerator.gather_for_metrics(loop.model(rows)) for rows, _ in loop.loader]
    objects: list[Any] = [{"rank": rank}]
    broadcast_object_list(objects, from_process=1)
    uneven = accelerator.pad_across_processes(torch.ones(rank + 1))
    predictions = torch.cat(found)
    assert len(predictions) == ROWS
    assert gather_object([rank]) == [0, 1]
    assert objects == [{"rank": 1}]
    return [predictions, accelerator.gather(uneven), accelerator.reduce(torch.ones(2), "mean")]


def stop_early() -> int:
    """Return the number of batches after which all ranks stop because rank 1 requests it."""
    loop = Loop()
    for count, _ in enumerate(loop.train(), start=1):
        if count == 3 and loop.accelerator.process_index == 1:
            loop.accelerator.set_trigger()
        if loop.accelerator.check_trigger():
            return count
    raise AssertionError("nobody has stopped")


def average_now_and_then() -> list[torch.Tensor]:
    """Return the weights after an epoch in which they are averaged at every third step."""
    loop = Loop()
    arguments = {"accelerator": loop.accelerator, "model": loop.model}
    with LocalSGD(**arguments, local_sgd_steps=3, enabled=True) as averaging:
        for _ in loop.train():
            averaging.step()
    return loop.weights()


def shard() -> torch.Tensor:
    """Return a weight of a model that FSDP2 shards, after a step through the Accelerator."""
    AcceleratorState._reset_state(reset_partial_state=True)
    set_seed(0)
    accelerator = Accelerator(cpu=True)
    model = fully_shard(nn.Linear(8, 4))
    optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=0.1))
    accelerator.backward(model(torch.ones(2, 8) * accelerator.process_index).square().sum())
    optimizer.step()
    return model.weight.full_tensor().detach()


def run(backend: str) -> dict[str, Any]:
    """Return all results with one backend."""
    dist.init_process_group(backend)
    with tempfile.TemporaryDirectory() as folder:
        shared: list[Any] = [folder]
        dist.broadcast_object_list(shared, src=0)
        results: dict[str, Any] = {
            "accumulated": train(gradient_accumulation_steps=2),
            "bf16": train(mixed_precision="bf16"),
            "fp16 hook": train(hook=DDPCommunicationHookType.FP16),
            "dispatched": train(dataloader_config=DataLoaderConfiguration(dispatch_batches=True)),
            "resumed": resume(Path(shared[0])),
            "evaluated": evaluate(),
            "stopped": stop_early(),
            "averaged": average_now_and_then(),
            "sharded": shard(),
        }
        dist.barrier()
    if backend == "slipstream":
        check_compression(results["dispatched"])
    Accelerator(cpu=True).end_training()
    assert not dist.is_initialized()
    return results


def check_compression(exact: list[torch.Tensor]) -> None:
    """Check that `compress` takes the model that `prepare` returns; it is exact on one host."""
    loop = Loop(dataloader_config=DataLoaderConfiguration(dispatch_batches=True))
    compress(loop.model, "int8")
    for _ in loop.train():
        pass
    torch.testing.assert_close(loop.weights(), exact, rtol=0, atol=0)


if __name__ == "__main__":
    same_on_both(run)
