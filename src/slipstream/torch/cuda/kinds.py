"""Kinds of devices that the engine serves through the functions of the CUDA driver."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

import torch


class DeviceKind(NamedTuple):
    """Kind of device with streams, as PyTorch and the engine know it.

    Args:
        name: PyTorch's name of the kind, such as cuda.
        library: Library with the functions of the CUDA driver, as dlopen() finds it.
        handle: Function that returns the driver's handle of a stream of PyTorch.
    """

    name: str
    library: str
    handle: Callable[[Any], int]

    @property
    def module(self) -> Any:
        """The module of PyTorch with the streams of the kind, such as torch.cuda."""
        return torch.get_device_module(self.name)


# Kinds by name. A library that is like the CUDA driver may add one before the first process group.
KINDS: dict[str, DeviceKind] = {
    "cuda": DeviceKind("cuda", "libcuda.so.1", attrgetter("cuda_stream"))
}


def kind_of(device: torch.device) -> DeviceKind:
    """Return the kind of a device, which must be one of `KINDS`."""
    return KINDS[device.type]
