"""Kinds of devices that the engine serves through the functions of the CUDA driver."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch.distributed.distributed_c10d import Store

from slipstream.torch.cuda.local_groups import LocalGroup, connect_nccl, has_nccl


class DeviceKind(NamedTuple):
    """Kind of device with streams, as PyTorch and the engine know it.

    Args:
        name: PyTorch's name of the kind, such as cuda.
        library: Library with the functions of the CUDA driver, as dlopen() finds it.
        handle: Function that returns the driver's handle of a stream of PyTorch.
        identity: Function that returns bytes that no other device on any host has; no bytes
            (default) if devices cannot be told apart.
        local_name: Name of the library for collectives within a host.
        connect: Function that connects the ranks of a host through that library; None if it is not
            available (default).
    """

    name: str
    library: str
    handle: Callable[[Any], int]
    identity: Callable[[torch.device], bytes] = lambda _: b""
    local_name: str = ""
    connect: Callable[[Store, int, int, torch.device, timedelta], LocalGroup] | None = None

    @property
    def module(self) -> Any:
        """The module of PyTorch with the streams of the kind, such as torch.cuda."""
        return torch.get_device_module(self.name)


def _uuid(device: torch.device) -> bytes:
    cuda: Any = torch.cuda
    return str(cuda.get_device_properties(device).uuid).encode()


# Kinds by name. A library that is like the CUDA driver may add one before the first process group.
KINDS: dict[str, DeviceKind] = {
    "cuda": DeviceKind(
        "cuda",
        "libcuda.so.1",
        attrgetter("cuda_stream"),
        identity=_uuid,
        local_name="NCCL",
        connect=connect_nccl if has_nccl() else None,
    )
}


def kind_of(device: torch.device) -> DeviceKind:
    """Return the kind of a device, which must be one of `KINDS`."""
    return KINDS[device.type]
