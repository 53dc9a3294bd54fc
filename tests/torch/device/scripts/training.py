"""DDP and FSDP2 on the test device, compared with DDP on the CPU over gloo."""

import copy
from collections.abc import Callable
from typing import Any

import ranks
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

STEPS = 4
WIDTH, LENGTH = 32, 6


def network() -> nn.Module:
    """Return a small transformer, the same on every rank."""
    torch.manual_seed(3)
    layers = [
        nn.TransformerEncoderLayer(WIDTH, 2, 64, dropout=0.0, batch_first=True) for _ in range(2)
    ]
    return nn.Sequential(nn.Linear(8, WIDTH), *layers, nn.Linear(WIDTH, 4))


def train(model: nn.Module, rank: int, device: str) -> None:
    """Train on batches that differ between ranks."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(STEPS):
        batch = torch.randn(4, LENGTH, 8, generator=generator).to(device)
        optimizer.zero_grad()
        if device != "cpu":
            ranks.keep_busy()
        model(batch).square().mean().backward()
        optimizer.step()


def halving_hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket, with a computation in a callback."""
    future = dist.all_reduce(bucket.buffer(), group=state, async_op=True).get_future()
    return future.then(lambda done: done.value()[0].div_(dist.get_world_size()))


def ddp(group: Any = None, hook: bool = False, **options: Any) -> Callable[[nn.Module], nn.Module]:
    """Return a function that makes a model data-parallel, with several buckets."""

    def wrap(model: nn.Module) -> nn.Module:
        wrapped = DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.02, **options)
        if hook:
            wrapped.register_comm_hook(group, halving_hook)
        return wrapped

    return wrap


def sharded(model: nn.Module) -> nn.Module:
    """Return the model with sharded parameters."""
    mesh = DeviceMesh.from_group(dist.group.WORLD, ranks.DEVICE.split(":")[0])
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def check(name: str, wrap: Callable[[nn.Module], nn.Module], reference: nn.Module) -> None:
    """Train a model on the device, and compare its parameters with the reference."""
    model = wrap(network().to(ranks.DEVICE))
    train(model, dist.get_rank(), ranks.DEVICE)
    for ours, other in zip(model.parameters(), reference.parameters(), strict=True):
        expected = other.detach()
        if isinstance(ours, DTensor):
            ours, expected = ours.to_local(), expected.chunk(dist.get_world_size())[dist.get_rank()]
        torch.testing.assert_close(
            ours.detach().cpu(), expected, rtol=1e-4, atol=1e-5, msg=lambda text: f"{name}: {text}"
        )


def main() -> None:
    """Train in each way."""
    rank, _ = ranks.start()
    reference = ddp(dist.new_group(backend="gloo"))(copy.deepcopy(network()))
    train(reference, rank, "cpu")
    check("DDP", ddp(), reference)
    check("views of buckets", ddp(gradient_as_bucket_view=True), reference)
    check("a static graph", ddp(static_graph=True), reference)
    check("a hook", ddp(hook=True), reference)
    check("FSDP2", sharded, reference)
    ranks.finish()


if __name__ == "__main__":
    main()
