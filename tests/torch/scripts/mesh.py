"""DeviceMesh: slices of a two-level mesh, and data with tensor parallelism over it.

torchrun --nproc-per-node 4 mesh.py
"""

import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def check_slices(mesh: DeviceMesh) -> None:
    """Check that a sum over a dimension covers the ranks of that row or column and no others."""
    for dimension, name in enumerate(("data", "model")):
        group = mesh[name].get_group()
        total = torch.tensor([dist.get_rank()])
        dist.all_reduce(total, group=group)
        others = mesh.mesh.select(1 - dimension, mesh.get_local_rank(1 - dimension))
        assert total.item() == others.sum().item()
        assert dist.get_process_group_ranks(group) == others.tolist()
    total = torch.ones(1)
    dist.all_reduce(total, group=mesh["data", "model"]._flatten().get_group())
    assert total.item() == mesh.size()


def check_two_level_training(mesh: DeviceMesh) -> None:
    """Tensor parallel inside, fully_shard outside, against one process with the whole batch."""
    torch.manual_seed(7)
    reference = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4))
    model = copy.deepcopy(reference)
    parallelize_module(model, mesh["model"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["data"])
    plain = torch.optim.SGD(reference.parameters(), lr=0.1)
    sharded = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        batch = torch.randn(mesh.size(0), 6, 12)
        for network, optimizer, rows in (
            (reference, plain, batch.flatten(0, 1)),
            (model, sharded, batch[mesh.get_local_rank("data")]),
        ):
            optimizer.zero_grad()
            network(rows).square().mean().backward()
            optimizer.step()
    for found, wanted in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(found.full_tensor(), wanted.detach(), rtol=1e-4, atol=1e-5)


def main() -> None:
    dist.init_process_group(os.environ.get("BACKEND", "slipstream"))
    size = dist.get_world_size()
    shape = (2, size // 2) if size % 2 == 0 else (1, size)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "model"))
    check_slices(mesh)
    check_two_level_training(mesh)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
