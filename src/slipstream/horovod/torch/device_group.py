"""Collectives on tensors of one device, with the names and arguments of `comm.Group`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.distributed import ReduceOp

from slipstream import _core, comm
from slipstream.horovod.torch.device_members import make_reductions
from slipstream.torch.collectives import Encoding, RunOptions, Submission, exchange_by_messages
from slipstream.torch.cuda.groups import CudaGroups
from slipstream.torch.cuda.kinds import kind_of
from slipstream.torch.cuda.reductions import GpuReductions
from slipstream.torch.cuda.stages import wait_for, wait_for_all
from slipstream.torch.tensors import DTYPES, cut_elements

_EXACT = "none"
_ENCODED_OPS = ("sum", "average")


class DeviceWork:
    """Operation on tensors of a device.

    Args:
        submission: Operations of the engine, with the memory that they use.
        device: Device of the tensors.
    """

    def __init__(self, submission: Submission, device: torch.device) -> None:
        self._submission, self._device = submission, device

    @property
    def handles(self) -> Sequence[_core.DeviceHandle]:
        """Operations of the engine."""
        return cast("Sequence[_core.DeviceHandle]", self._submission.handles)

    def wait(self) -> None:
        """Make the current stream wait for the results; does not block."""
        wait_for_all(self._submission, kind_of(self._device).module.current_stream(self._device))


class DeviceCollectives:
    """Collectives of a process set on tensors of one device; they begin on the current stream.

    All tensors must be contiguous. Only one thread may use the object.

    Args:
        group: Ranks of the process set.
        device: Device of the tensors.
    """

    def __init__(self, group: comm.Group, device: torch.device) -> None:
        self.rank, self.size = group.rank, group.size
        self._group, self._device = group, device
        engine_group = group._group  # pyright: ignore[reportPrivateUsage]
        self._engine_group: _core.Group = engine_group
        self._groups = CudaGroups(engine_group)
        self._reductions_made: GpuReductions | None = None

    @property
    def encodes(self) -> bool:
        """Whether the device encodes, not the CPU; equal on all ranks, which must all ask."""
        return self._reductions.encodes

    def allreduce(
        self,
        array: torch.Tensor,
        op: str,
        *,
        out: torch.Tensor,
        codec: str = _EXACT,
        residual: torch.Tensor | None = None,
        async_op: bool = True,
        name: str = "",
        priority: int = 0,
    ) -> DeviceWork:
        """Begin to reduce a tensor over all ranks into `out`."""
        if out.data_ptr() != array.data_ptr():
            out.copy_(array)
        options = _options(name)
        if codec != _EXACT and op in _ENCODED_OPS:
            flat = None if residual is None else residual.view(-1)
            encoding = Encoding(codec, flat, priority, op == "average")
            submission = self._reductions.allreduce_encoded(out, encoding, options)
        else:
            submission = self._reductions.allreduce(out, _torch_op(op), options, priority)
        return DeviceWork(submission, self._device)

    def reduce_scatter(
        self, array: torch.Tensor, op: str, *, out: torch.Tensor, **options: Any
    ) -> DeviceWork:
        """Begin to reduce a tensor over all ranks; `out` gets this rank's part."""
        handle = self._current().reduce_scatter(
            array.data_ptr(),
            out.data_ptr(),
            out.numel(),
            DTYPES[out.dtype],
            _core.ReduceOp[op.upper()],
            **_engine(options),
        )
        return self._work(handle, array, out)

    def all_gather_v(
        self, array: torch.Tensor, counts: Sequence[int], *, out: torch.Tensor, **options: Any
    ) -> DeviceWork:
        """Begin to gather the tensors of all ranks, which have `counts` elements, in `out`."""
        handle = self._current().all_gather_v(
            array.data_ptr(), out.data_ptr(), counts, DTYPES[out.dtype], **_engine(options)
        )
        return self._work(handle, array, out)

    def broadcast(self, array: torch.Tensor, root: int, **options: Any) -> DeviceWork:
        """Begin to replace a tensor by the tensor of the rank `root`."""
        handle = self._current().broadcast(
            array.data_ptr(), array.numel(), DTYPES[array.dtype], root, **_engine(options)
        )
        return self._work(handle, array)

    def all_to_all_v(
        self,
        array: torch.Tensor,
        sent: Sequence[int],
        received: Sequence[int],
        *,
        out: torch.Tensor,
        **options: Any,
    ) -> DeviceWork:
        """Begin to send `sent` elements to each rank, and to receive `received` in `out`."""
        handles = exchange_by_messages(
            cast("_core.Group", self._current()),
            cut_elements(array, list(sent)),
            cut_elements(out, list(received)),
            _options(options.get("name", "")),
        )
        return DeviceWork(Submission(handles, [array], [out], (array, out)), self._device)

    def send(self, array: torch.Tensor, peer: int, **options: Any) -> DeviceWork:
        """Begin to send a tensor to one rank."""
        handle = self._current().send(
            array.data_ptr(), array.numel(), DTYPES[array.dtype], peer, **_engine(options)
        )
        return self._work(handle, array)

    def recv(self, out: torch.Tensor, peer: int, **options: Any) -> None:
        """Receive a tensor from one rank; the current stream waits for the tensor."""
        handle = self._current().recv(
            out.data_ptr(), out.numel(), DTYPES[out.dtype], peer, **_engine(options)
        )
        wait_for(handle, kind_of(self._device).module.current_stream(self._device))

    def close(self) -> None:
        """Leave the group, and block until the device uses no memory of its operations."""
        if self._reductions_made is not None:
            self._reductions_made.close()
        self._groups.close()

    @property
    def _reductions(self) -> GpuReductions:
        """The reductions, made at their first use; all ranks use them in the same order."""
        if self._reductions_made is None:
            self._reductions_made = make_reductions(self._engine_group, self._groups, self._device)
        return self._reductions_made

    def _current(self) -> _core.DeviceGroup:
        return self._groups.on_current_stream(self._device)

    def _work(self, handle: _core.DeviceHandle, *tensors: torch.Tensor) -> DeviceWork:
        submission = Submission((handle,), tensors, tensors, tensors)  # pyright: ignore
        return DeviceWork(submission, self._device)


def _options(name: str) -> RunOptions:
    return {"timeout": 0.0, "waits_soon": False, "name": name}


def _engine(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that the engine knows."""
    return {key: value for key, value in options.items() if key != "async_op"}


def _torch_op(name: str) -> ReduceOp:
    return ReduceOp(ReduceOp.AVG if name == "average" else getattr(ReduceOp, name.upper()))
