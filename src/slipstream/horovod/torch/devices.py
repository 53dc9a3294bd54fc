"""Adapter of the Horovod API to the devices of PyTorch, such as CUDA GPUs."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch

from slipstream import comm
from slipstream.horovod.common.exceptions import RefusedError
from slipstream.horovod.request import Request
from slipstream.horovod.torch.device_site import DeviceSite
from slipstream.torch.cuda.kinds import KINDS, kind_of

# Kinds of operations whose result has the shape of the tensor.
_SAME_SHAPE = ("allreduce", "adasum", "broadcast")


class TorchDevices:
    """Implementation of `horovod.sites.Devices` for PyTorch.

    A process uses one device of each kind, as Horovod's documentation asks of scripts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards `_used`
        self._used: dict[str, torch.device] = {}

    def admit(self, device: torch.device) -> None:
        """Check that the operations of a tensor can run on its device now.

        Raises:
            RefusedError: The process uses another device of this kind, or the current stream is
                being captured into a CUDA graph.
        """
        with self._lock:
            used = self._used.setdefault(device.type, device)
        if used != device:
            raise RefusedError(
                f"a tensor on {device}, but earlier tensors of this process were on {used};"
                " allowed: one GPU for each process. Call"
                " torch.cuda.set_device(hvd.local_rank()) after hvd.init()"
            )
        if kind_of(device).module.is_current_stream_capturing():
            raise RefusedError(
                f"a tensor on {device} was passed while the current stream is being captured into a"
                " CUDA graph. The tensor's data go through the host, so a graph cannot contain the"
                " operation; call it outside of torch.cuda.graph"
            )

    def prepare(self, requests: Sequence[Request]) -> None:
        """Note in requests on which kind of device their arrays are, and the current moment.

        Requests whose result has the shape of their array get an output too. The memory of the
        output belongs to the current stream.
        """
        on_device = [request for request in requests if not request.array.is_cpu]
        if not on_device:
            return
        device = on_device[0].array.device
        for request in on_device:
            request.device = device.type
            if request.output is None and request.kind in _SAME_SHAPE:
                request.output = torch.empty_like(request.array)
        event = kind_of(device).module.current_stream(device).record_event()
        for request in on_device:
            request.after = event

    def expect(self, ordinal: int) -> None:
        """Note the device for tensors of other ranks, if this rank has submitted none so far.

        Args:
            ordinal: Number of the device; a negative number means the current device.
        """
        for kind in KINDS.values():
            if not kind.module.is_available():
                continue
            number = ordinal
            if number < 0:
                number = kind.module.current_device() if kind.module.is_initialized() else 0
            with self._lock:
                self._used.setdefault(kind.name, torch.device(kind.name, number))

    def site(self, kind: str, group: comm.Group) -> DeviceSite:
        """Return a site on this process's device of a kind, for the ranks of a process set."""
        with self._lock:
            device = self._used[kind]
        return DeviceSite(group, device)
