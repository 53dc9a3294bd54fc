"""The interface to collectives among the GPUs of one host, and its implementation by NCCL."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol

import torch
from torch.distributed import ReduceOp
from torch.distributed.distributed_c10d import (
    AllgatherOptions,  # pyright: ignore[reportPrivateImportUsage]
    ReduceScatterOptions,
    Store,
    Work,
)


class LocalGroup(Protocol):
    """The collectives that the hierarchy needs among the GPUs of a host.

    A collective begins on the current stream and returns a work, whose `wait` makes the current
    stream wait for the result. The GPU executes the collectives of a group in the order of their
    calls.
    """

    def reduce_scatter(self, output: torch.Tensor, source: torch.Tensor, op: ReduceOp) -> Work:
        """Reduce the source over all ranks, and fill the output with this rank's part."""
        ...

    def all_gather(self, output: torch.Tensor, source: torch.Tensor) -> Work:
        """Fill the output with the sources of all ranks, in their order."""
        ...

    def close(self) -> None:
        """Leave the group, all collectives of which have ended; all ranks must call this."""
        ...

    def abort(self) -> None:
        """End all collectives, whose outputs are then undefined, and leave the group.

        The function returns although other ranks are gone. A thread other than that of the
        collectives may call it.
        """
        ...


class BackendGroup:
    """Group of a backend of torch.distributed, such as NCCL.

    Args:
        backend: Backend, with the methods that PyTorch's own backends have.
        timeout: Time limit of each collective.
    """

    def __init__(self, backend: Any, timeout: timedelta) -> None:
        self._backend, self._timeout = backend, timeout

    def reduce_scatter(self, output: torch.Tensor, source: torch.Tensor, op: ReduceOp) -> Work:
        """Reduce the source over all ranks, and fill the output with this rank's part."""
        options = ReduceScatterOptions()
        options.reduceOp, options.timeout = op, self._timeout
        return self._backend._reduce_scatter_base(output, source, options)

    def all_gather(self, output: torch.Tensor, source: torch.Tensor) -> Work:
        """Fill the output with the sources of all ranks, in their order."""
        options = AllgatherOptions()
        options.timeout = self._timeout
        return self._backend._allgather_base(output, source, options)

    def close(self) -> None:
        """Leave the group, all collectives of which have ended; all ranks must call this."""
        self._backend.shutdown()

    def abort(self) -> None:
        """End all collectives, whose outputs are then undefined, and leave the group."""
        self._backend.abort()


def has_nccl() -> bool:
    """Return whether this build of PyTorch contains NCCL."""
    return torch.distributed.is_nccl_available()


def connect_nccl(
    store: Store, rank: int, size: int, device: torch.device, timeout: timedelta
) -> LocalGroup:
    """Return a communicator of NCCL, after all ranks of the host have come.

    Args:
        store: Store of the communicator, which its ranks share.
        rank: Rank of this process among those of its host.
        size: Number of ranks of the host.
        device: GPU of this rank; no other rank may have the same.
        timeout: Time limit of the engine's operations. NCCL gets twice as much: it counts from the
            call of a collective, which then waits for the network as well, and ends the process.
            PyTorch ignores the time limits of single collectives of NCCL.
    """
    from torch.distributed import ProcessGroupNCCL  # pyright: ignore

    options: Any = ProcessGroupNCCL.Options()
    options._timeout = timeout * 2
    backend: Any = ProcessGroupNCCL(store, rank, size, options)
    backend._set_sequence_number_for_group()
    backend.eager_connect_single_device(device)
    return BackendGroup(backend, timeout * 2)
