"""fully_shard equals one process that trains on the whole batch, also over a two-level mesh.

torchrun --nproc-per-node 4 fsdp2.py
"""

import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

STEPS = 4
ROWS_PER_RANK = 4


def make_model() -> nn.Sequential:
    """Return three blocks, whose 33 outputs do not divide evenly among ranks."""
    torch.manual_seed(7)
    widths = [(16, 33), (33, 33), (33, 16)]
    return nn.Sequential(*[nn.Sequential(nn.Linear(a, b), nn.Tanh()) for a, b in widths])


def shard(model: nn.Sequential, mesh: DeviceMesh, policy: MixedPrecisionPolicy) -> nn.Sequential:
    """Shard each block and then the complete model, as users do."""
    for block in model:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def train(model: nn.Module, batches: list[torch.Tensor]) -> list[float]:
    """Train with Adam and return the losses."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def check(mesh: DeviceMesh, policy: MixedPrecisionPolicy, tolerance: float) -> None:
    """Compare every parameter after training, sharded and not."""
    reference = make_model()
    model = shard(copy.deepcopy(reference), mesh, policy)
    batches = torch.randn(STEPS, dist.get_world_size(), ROWS_PER_RANK, 16).unbind()
    train(reference, [batch.flatten(0, 1) for batch in batches])
    train(model, [batch[dist.get_rank()] for batch in batches])
    for found, wanted in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(
            found.full_tensor(), wanted.detach(), rtol=tolerance, atol=tolerance
        )


def main() -> None:
    dist.init_process_group(os.environ.get("BACKEND", "slipstream"))
    world_size = dist.get_world_size()
    flat = init_device_mesh("cpu", (world_size,))
    check(flat, MixedPrecisionPolicy(), 1e-4)
    check(flat, MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32), 0.05)
    if world_size % 2 == 0:
        replicas = init_device_mesh("cpu", (2, world_size // 2), mesh_dim_names=("hosts", "local"))
        check(replicas, MixedPrecisionPolicy(), 1e-4)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
