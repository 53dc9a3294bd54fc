"""Groups of the engine for tensors of GPUs, one for each GPU that a process uses."""

from __future__ import annotations

import threading

import torch

from slipstream import _core
from slipstream.errors import UsageError
from slipstream.torch.cuda.kinds import kind_of


class CudaGroups:
    """The engine's groups for the GPUs of a process, made at their first use.

    Args:
        group: Group of the engine for tensors of the CPU; the groups for GPUs have the same ranks.
    """

    def __init__(self, group: _core.Group) -> None:
        self._group = group
        self._lock = threading.Lock()  # guards the two attributes below
        self._by_device: dict[torch.device, _core.DeviceGroup] = {}
        self._stages: dict[tuple[torch.device, str], torch.Stream] = {}

    def stage(self, device: torch.device, name: str) -> torch.Stream:
        """Return the stream on which a GPU runs a later stage of this group's collectives.

        Groups do not share streams: if ranks use two groups in different orders, the ranks' streams
        would wait for one another for ever.
        """
        with self._lock:
            stream = self._stages.get((device, name))
            if stream is None:
                stream = self._stages[device, name] = kind_of(device).module.Stream(device)
            return stream

    def on_current_stream(self, device: torch.device) -> _core.DeviceGroup:
        """Return the engine's group for a GPU; its collectives begin on PyTorch's current stream.

        Raises:
            UsageError: The stream is being captured into a CUDA graph.
            UnsupportedError: There is no CUDA driver, or the GPU's streams cannot wait until the
                host writes a value to memory.
        """
        kind = kind_of(device)
        with kind.module.device(device):
            is_capturing = kind.module.is_current_stream_capturing()
        if is_capturing:
            raise UsageError(
                "a collective of slipstream cannot be captured into a CUDA graph, because its data"
                " go through the host; call it outside of torch.cuda.graph"
            )
        ordinal = device.index  # never None, because the device is that of a tensor
        with self._lock:
            group = self._by_device.get(device)
            if group is None:
                kind.module.init()
                group = _core.DeviceGroup(self._group, ordinal, library=kind.library)
                self._by_device[device] = group
        return group.on(kind.handle(kind.module.current_stream(device)))

    def rank(self) -> int:
        """Return the rank of this process in the groups."""
        return self._group.rank()

    def close(self) -> None:
        """Leave the groups; block until the GPUs no longer use the memory of their operations."""
        with self._lock:
            groups = list(self._by_device.values())
            self._by_device.clear()
        for group in groups:
            group.close()
