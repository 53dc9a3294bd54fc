"""DTensor: every change of placement, and sharded matrix products, against plain tensors.

torchrun --nproc-per-node 4 dtensor.py
"""

import itertools
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)


def check_redistribute(mesh: DeviceMesh) -> None:
    """Redistribute even and uneven tensors through all pairs of placements."""
    for shape in ((8, 12), (7, 5), (1, 3)):
        torch.manual_seed(3)
        whole = torch.randn(shape)
        for start, end in itertools.product((Shard(0), Shard(1), Replicate()), repeat=2):
            tensor = distribute_tensor(whole.clone(), mesh, [start]).redistribute(mesh, [end])
            assert tensor.placements == (end,)
            torch.testing.assert_close(tensor.full_tensor(), whole, rtol=0, atol=0)
        for end in (Shard(0), Shard(1), Replicate()):
            partial = DTensor.from_local(whole * (mesh.get_rank() + 1), mesh, [Partial()])
            n = mesh.size()
            wanted = whole * (n * (n + 1) // 2)
            torch.testing.assert_close(partial.redistribute(mesh, [end]).full_tensor(), wanted)


def check_products(mesh: DeviceMesh) -> None:
    """Multiply matrices in every placement, with gradients."""
    torch.manual_seed(4)
    left, right = torch.randn(8, 12), torch.randn(12, 16)
    for a, b in itertools.product((Shard(0), Shard(1), Replicate()), repeat=2):
        x = distribute_tensor(left.clone(), mesh, [a]).requires_grad_()
        y = distribute_tensor(right.clone(), mesh, [b]).requires_grad_()
        product = x @ y
        torch.testing.assert_close(product.full_tensor(), left @ right)
        product.redistribute(mesh, [Replicate()]).sum().backward()
        assert x.grad is not None
        torch.testing.assert_close(x.grad.full_tensor(), right.sum(1).expand(8, 12))


def check_tensor_parallel(mesh: DeviceMesh) -> None:
    """Split a two-layer network by columns, then rows, and compare output and gradient."""
    torch.manual_seed(5)
    network = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 6))
    rows = torch.randn(5, 12)
    wanted = network(rows)
    wanted.sum().backward()
    gradient = network[0].weight.grad
    network.zero_grad()
    parallelize_module(network, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    found = network(rows)
    found.sum().backward()
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(network[0].weight.grad.full_tensor(), gradient)


def main() -> None:
    dist.init_process_group(os.environ.get("BACKEND", "slipstream"))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    check_redistribute(mesh)
    check_products(mesh)
    check_tensor_parallel(mesh)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
