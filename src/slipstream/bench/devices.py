"""The device that holds a benchmark's tensors, and the backends that can be compared on it."""

# PyTorch's type stubs leave some types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from slipstream.cluster.launch.nccl import plugin_environment
from slipstream.errors import ConfigError, UnsupportedError, UsageError
from slipstream.processor import DEVICES, num_gpus

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

CPU = "cpu"

# NCCL's documentation allows up to 64 sockets per connection; 16 pass every cap per flow that
# clouds have.
TUNED = {"NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "4"}

# Ways to run NCCL. NCCL reads its variables once, so each way needs processes of its own.
NCCL, NCCL_TUNED, NCCL_PLUGIN = "nccl", "nccl-tuned", "nccl-plugin"
NCCL_WAYS = (NCCL, NCCL_TUNED, NCCL_PLUGIN)

# NCCL from 2.30 on refuses several ranks of a GPU without this variable. Older releases tell
# ranks of a GPU apart by NCCL_HOSTID, which a lab sets.
SHARED_GPU = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}


def check_device(name: str) -> None:
    """Check that PyTorch can use a device on this machine.

    Args:
        name: PyTorch's name of a kind of devices, such as "cpu" or "cuda".

    Raises:
        UsageError: PyTorch does not know the name, or the name has a number.
        UnsupportedError: this machine has no such device.
    """
    if name == CPU:
        return
    import torch

    try:
        has_number = ":" in str(torch.device(name))
    except RuntimeError:  # its text lists all devices that any PyTorch may have
        raise UsageError(
            f"the device is {name!r}; allowed: cpu, cuda, or PyTorch's name of another device"
        ) from None
    if has_number:
        raise UsageError(
            f"the device is {name!r}; allowed: a name without a number, such as"
            f" {name.partition(':')[0]}, because each rank has a device of its own or shares one;"
            " choose GPUs by CUDA_VISIBLE_DEVICES=1,2"
        )
    if not torch.get_device_module(name).is_available():
        raise UnsupportedError(_missing(name))


def _missing(name: str) -> str:
    import torch

    found = f"PyTorch {torch.__version__}"
    remedy = "give this machine or container such a device, and see what `slipstream doctor` says"
    if name == "cuda":
        version: str | None = torch.version.cuda
        found += f", built {f'for CUDA {version}' if version else 'without CUDA'}, and {num_gpus()}"
        found += f" NVIDIA GPUs in {DEVICES}"
        if version is None:
            remedy = f"install a PyTorch with CUDA, see https://pytorch.org/get-started; {remedy}"
    return (
        f"PyTorch can use no device {name!r} on this machine; found: {found}; {remedy}; or measure"
        " tensors of the CPU with --device cpu"
    )


def has_nccl() -> bool:
    """Return whether this PyTorch has NCCL."""
    import torch.distributed as dist

    return dist.is_nccl_available()


def nccl_obstacle(way: str, device: str, ranks_per_host: int) -> str:
    """Return the reason why NCCL cannot be measured; "" if it can.

    Args:
        way: Name from `NCCL_WAYS`.
        device: Name of the device that has the tensors, other than "cpu".
        ranks_per_host: Number of ranks on each host.
    """
    import torch

    if device != "cuda":
        return f"NCCL has no code for tensors of {device}"
    if not has_nccl():
        return f"PyTorch {torch.__version__} has no NCCL"
    if torch.cuda.device_count() < ranks_per_host:
        return f"{ranks_per_host} ranks of a host share a GPU, which NCCL refuses"
    if way == NCCL_PLUGIN:
        try:
            plugin_environment(os.environ)
        except ConfigError as error:
            return str(error)
    return ""


def nccl_environment(way: str) -> Mapping[str, str]:
    """Return environment variables of the ranks for a way to run NCCL.

    Args:
        way: Name from `NCCL_WAYS`.
    """
    if way == NCCL_TUNED:
        return {**SHARED_GPU, **TUNED}
    if way == NCCL_PLUGIN:
        return {**SHARED_GPU, **plugin_environment(os.environ)}
    return SHARED_GPU


def choose_device(name: str) -> torch.device:
    """Return this rank's device; with more ranks than devices, ranks share them.

    Args:
        name: PyTorch's name of a kind of devices.
    """
    import torch
    import torch.distributed as dist

    if name == CPU:
        return torch.device(CPU)
    module = torch.get_device_module(name)
    device = torch.device(name, dist.get_rank() % module.device_count())
    module.set_device(device)
    return device


def settle(device: torch.device) -> None:
    """Block until a device has done all its work; a CPU has none left."""
    import torch

    if device.type != CPU:
        torch.get_device_module(device).synchronize(device)


def new_group(backend: str, device: torch.device) -> dist.ProcessGroup:
    """Return a new process group of all ranks, which must all call this function.

    Args:
        backend: Name of a backend of torch.distributed, or a name from `NCCL_WAYS`.
        device: Device that has the tensors.
    """
    import torch.distributed as dist

    group = dist.new_group(backend=backend_for(backend, device.type))
    assert isinstance(group, dist.ProcessGroup)
    return group


def backend_for(backend: str, device: str) -> str:
    """Return PyTorch's name of a backend for tensors of a device and of the CPU.

    On devices for which gloo has no code, gloo gets copies in host memory.

    Args:
        backend: Name of a backend of torch.distributed, or a name from `NCCL_WAYS`.
        device: PyTorch's name of the kind of devices.
    """
    if backend in NCCL_WAYS:
        return "cpu:gloo,cuda:nccl"
    if backend == "gloo" and not gloo_has_code(device):
        from slipstream.bench.host_copies import register

        return register(device)
    return backend


def gloo_has_code(device: str) -> bool:
    """Return whether gloo takes tensors of a kind of devices."""
    return device in (CPU, "cuda")
