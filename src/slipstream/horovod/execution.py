"""Execution: starts the engine's operations for tensors that are ready on all ranks.

Every rank starts the same operations in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from slipstream import comm
from slipstream.comm.arrays import Array
from slipstream.errors import SlipstreamError, UnsupportedError
from slipstream.horovod.arrays import Arrays
from slipstream.horovod.fusion import ReadyTensor, fuse
from slipstream.horovod.operations import Operations
from slipstream.horovod.request import HOST
from slipstream.horovod.sites import HostSite
from slipstream.settings import HorovodSettings

# Kinds of operations that fail once a rank has joined, because it cannot take part with zeros.
_REFUSED_AFTER_JOIN = ("all_gather", "broadcast", "all_to_all", "reduce_scatter")


class Execution:
    """Component that starts the engine's operations for the tensors of a process set.

    Only one thread may use an `Execution`.

    Args:
        group: Ranks of the process set.
        settings: Settings of this process.
        arrays: Adapter of the framework.
    """

    def __init__(self, group: comm.Group, settings: HorovodSettings, arrays: Arrays) -> None:
        self._group, self._arrays = group, arrays
        self._by_device: dict[str, Operations] = {HOST: Operations(HostSite(group, arrays), arrays)}
        self._fusion_bytes = settings.fusion_bytes
        self._separates_groups = settings.separates_groups

    def start(self, ready: Sequence[ReadyTensor], *, some_joined: bool) -> None:
        """Start the operations for the tensors of one negotiation round.

        The call blocks while ranks exchange sizes.

        Args:
            ready: Tensors that are ready, in the same order on all ranks.
            some_joined: Whether a rank has called join(). Such a rank takes part with zeros, so
                only allreduces and barriers can run.
        """
        if some_joined:
            ready = [member for member in ready if not self._refuse(member)]
        try:
            rows = self._exchange_rows(ready)
            received = self._exchange_splits(ready)
        except SlipstreamError as error:
            _fail(ready, error)
            return
        for fused in fuse(ready, self._fusion_bytes, separates_groups=self._separates_groups):
            try:
                self._operations(fused.members[0].request.device).run(fused, rows, received)
            except SlipstreamError as error:
                _fail(fused.members, error)

    def zeros(self, dtype: str, shape: Sequence[int], device: str) -> Array:
        """Return a new array of zeros on a kind of device, for a tensor of other ranks."""
        return self._operations(device).site.zeros(dtype, shape)

    def release_done(self) -> None:
        """Release the memory of operations that are done; does not block."""
        for operations in self._by_device.values():
            operations.site.release_done()

    def close(self) -> None:
        """Leave the sites, and block until no operation on a device uses memory."""
        for operations in self._by_device.values():
            operations.site.close()

    def _operations(self, device: str) -> Operations:
        """Return the operations for a kind of device, which are made at its first use."""
        if device not in self._by_device:
            assert self._arrays.devices is not None  # it has named the kind
            site = self._arrays.devices.site(device, self._group)
            self._by_device[device] = Operations(site, self._arrays)
        return self._by_device[device]

    def _refuse(self, ready: ReadyTensor) -> bool:
        """Let a tensor fail whose operation needs data from a rank that has called join().

        Returns:
            Whether the operation needs such data.
        """
        is_refused = ready.request.kind in _REFUSED_AFTER_JOIN
        if is_refused and ready.handle is not None:
            ready.handle.fail(
                UnsupportedError(
                    f"{ready.request.title} is not supported with Join at this time: tensor"
                    f" {ready.request.name!r}, and some ranks have called join(). Specify"
                    " sparse_as_dense=True if using DistributedOptimizer"
                )
            )
        return is_refused

    def _exchange_rows(self, ready: Sequence[ReadyTensor]) -> dict[str, list[int]]:
        """Return the numbers of rows from all ranks for each all_gather; keys are tensor names."""
        requests = [member.request for member in ready if member.request.kind == "all_gather"]
        if not requests:
            return {}
        own_rows = [self._arrays.shape(request.array)[0] for request in requests]
        all_rows: NDArray[np.int64] = self._group.all_gather(np.array(own_rows, dtype=np.int64))
        return {request.name: all_rows[:, i].tolist() for i, request in enumerate(requests)}

    def _exchange_splits(self, ready: Sequence[ReadyTensor]) -> dict[str, list[int]]:
        """Return the numbers of rows from all ranks for each all-to-all; keys are tensor names."""
        requests = [member.request for member in ready if member.request.kind == "all_to_all"]
        if not requests:
            return {}
        sent = np.stack([np.array(request.splits, dtype=np.int64) for request in requests], axis=1)
        received: NDArray[np.int64] = self._group.all_to_all(np.ascontiguousarray(sent))
        return {request.name: received[:, i].tolist() for i, request in enumerate(requests)}


def _fail(members: Sequence[ReadyTensor], error: SlipstreamError) -> None:
    for member in members:
        if member.handle is not None:
            member.handle.fail(error)
