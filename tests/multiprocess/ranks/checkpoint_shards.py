"""Ranks that shard a model with FSDP2 and save it, or restore it and compare it.

The arguments are "save" or "restore", and the folder.
"""

import sys

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from slipstream.train.checkpoint import Checkpointer, dcp


def make_model(seed: int) -> torch.nn.Sequential:
    torch.manual_seed(seed)  # 33 outputs do not divide evenly among ranks
    return torch.nn.Sequential(torch.nn.Linear(16, 33), torch.nn.Tanh(), torch.nn.Linear(33, 16))


def trained(sharded: bool) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Return the same model after a step, sharded or not."""
    model = make_model(7)
    if sharded:
        fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batch = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    (model(batch) - batch).square().mean().backward()
    optimizer.step()
    return model, optimizer


def trained_zero(seed: int) -> tuple[torch.nn.Module, ZeroRedundancyOptimizer]:
    """Return a model after a step by an optimizer whose state is divided among the ranks."""
    model = make_model(seed)
    rate = 0.01 if seed == 7 else 0.5
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=rate)
    batch = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    (model(batch) - batch).square().mean().backward()
    optimizer.step()
    return model, optimizer


def whole(value):
    """Return a state with tensors that are not sharded."""
    if isinstance(value, DTensor):
        return value.full_tensor()
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    return value


def meshed(value: float) -> dict:
    """Return tensors on a mesh of two dimensions, sharded along one or two of them."""
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (2, size // 2) if size > 1 else (1, 1))
    tensor = torch.arange(5 * 7, dtype=torch.float32).view(5, 7) * value
    placements = {
        "both": (Shard(0), Shard(1)),
        "second": (Replicate(), Shard(1)),
        "none": (Replicate(), Replicate()),
    }
    return {
        name: distribute_tensor(tensor.clone(), mesh, where) for name, where in placements.items()
    }


def save(folder: str) -> None:
    model, optimizer = trained(sharded=True)
    checkpointer = Checkpointer(folder)
    state = {"model": model, "optimizer": optimizer, "meshed": meshed(1.0)}
    state["zero"] = trained_zero(7)[1]
    checkpointer.save(1, state)
    checkpointer.wait()
    assert checkpointer.list(verify=True)[0].is_whole
    plain = {"model": model.state_dict(), "meshed": meshed(1.0), "note": {"lr": 0.5}}
    dist.checkpoint.save(plain, storage_writer=dcp.SlipstreamWriter(f"{folder}/step-00000002"))


def restore(folder: str) -> None:
    expected_model, expected_optimizer = trained(sharded=False)
    model = make_model(8)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    divided_model, divided = trained_zero(9)
    state = {"model": model, "optimizer": optimizer, "meshed": meshed(0.0), "zero": divided}
    assert Checkpointer(folder).restore(state, step=1) == 1
    for number, parameter in enumerate(divided_model.parameters()):
        if parameter in divided.optim.state:  # this rank's part of the parameters
            compare(
                divided.optim.state[parameter], expected_optimizer.state_dict()["state"][number]
            )
    assert divided.optim.state
    assert divided.param_groups[0]["lr"] == divided.optim.param_groups[0]["lr"] == 0.01
    compare(model.state_dict(), expected_model.state_dict())
    moments = whole(optimizer.state_dict()["state"])
    for number, entry in expected_optimizer.state_dict()["state"].items():
        compare(moments[number], entry)
    assert isinstance(optimizer.state[next(model.parameters())]["exp_avg"], DTensor)
    assert optimizer.param_groups[0]["lr"] == 0.01
    compare(state["meshed"], whole_numbers())

    other = make_model(9)
    fully_shard(other)
    state = {"model": other, "meshed": meshed(0.0), "note": {"lr": 0.0}}
    assert Checkpointer(folder).restore(state) == 2  # written by torch.distributed.checkpoint
    compare(other.state_dict(), expected_model.state_dict())
    assert state["note"] == {"lr": 0.5}
    read = {"meshed": meshed(0.0)}
    reader = dcp.SlipstreamReader(f"{folder}/step-00000001")
    dist.checkpoint.load(read, storage_reader=reader)
    compare(read["meshed"], whole_numbers())


def whole_numbers() -> dict:
    numbers = torch.arange(5 * 7, dtype=torch.float32).view(5, 7)
    return dict.fromkeys(("both", "second", "none"), numbers)


def compare(state: dict, expected: dict) -> None:
    assert state.keys() == expected.keys()
    for name, tensor in whole(dict(state)).items():
        np.testing.assert_allclose(tensor.numpy(), expected[name].numpy(), 1e-4, 1e-6, err_msg=name)


if __name__ == "__main__":
    dist.init_process_group("slipstream")
    {"save": save, "restore": restore}[sys.argv[1]](sys.argv[2])
    dist.destroy_process_group()
