"""Groups of the engine for CUDA tensors, one for each GPU that a process uses."""

from __future__ import annotations

import threading

import torch

from slipstream import _core
from slipstream.errors import UsageError


class CudaGroups:
    """The engine's groups for the GPUs of a process, made at their first use.

    Args:
        group: Group of the engine for tensors of the CPU; the groups for GPUs have the same ranks.
    """

    def __init__(self, group: _core.Group) -> None:
        self._group = group
        self._lock = threading.Lock()  # guards `_by_ordinal`
        self._by_ordinal: dict[int, _core.DeviceGroup] = {}

    def on_current_stream(self, device: torch.device) -> _core.DeviceGroup:
        """Return the group for a GPU, whose next collective begins on PyTorch's current stream.

        Raises:
            UsageError: The stream is being captured into a CUDA graph.
            UnsupportedError: There is no CUDA driver, or the GPU cannot wait for words of host
                memory.
        """
        with torch.cuda.device(device):
            is_capturing = torch.cuda.is_current_stream_capturing()
        if is_capturing:
            raise UsageError(
                "a collective of slipstream cannot be captured into a CUDA graph, because its data"
                " go through the host; call it outside of torch.cuda.graph"
            )
        ordinal = device.index  # never None, because the device is that of a tensor
        with self._lock:
            group = self._by_ordinal.get(ordinal)
            if group is None:
                torch.cuda.init()
                group = self._by_ordinal[ordinal] = _core.DeviceGroup(self._group, ordinal)
        return group.on(torch.cuda.current_stream(ordinal).cuda_stream)

    def rank(self) -> int:
        """Return the rank of this process in the groups."""
        return self._group.rank()

    def close(self) -> None:
        """Leave the groups, and block until the GPUs use no memory of their operations."""
        with self._lock:
            groups = list(self._by_ordinal.values())
            self._by_ordinal.clear()
        for group in groups:
            group.close()
