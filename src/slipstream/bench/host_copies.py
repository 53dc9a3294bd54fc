"""A backend of torch.distributed for devices that gloo does not know: it copies to the host.

It has the collectives that DDP and the benchmarks call, and blocks the CPU in each of them.
"""

# PyTorch's type stubs leave some types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportIncompatibleMethodOverride=false

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed.distributed_c10d import PrefixStore, Work

NAME = "gloo_host_copies"
NO_LIMIT = timedelta(0)


def register(device: str) -> str:
    """Make the backend known to PyTorch, once in a process; return its name.

    Args:
        device: PyTorch's name of the kind of devices.
    """
    if not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", device])
    return NAME


def _create(options: Any, _: Any) -> HostCopies:
    rank, size = options.group_rank, options.group_size
    store = PrefixStore(f"{options.group_id}/{NAME}", options.store)
    return HostCopies(dist.ProcessGroupGloo(store, rank, size, options.timeout), rank, size)


class CopiedWork(Work):
    """A collective that has ended.

    Args:
        result: Output tensors.
    """

    def __init__(self, result: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._result = result

    def wait(self, timeout: timedelta = NO_LIMIT) -> bool:
        """Return at once."""
        return True

    def is_completed(self) -> bool:
        """Return true."""
        return True

    def result(self) -> Sequence[torch.Tensor]:
        """Return the outputs."""
        return self._result

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future that is complete."""
        devices: list[int | str | torch.device] = [
            tensor.device for tensor in self._result[:1] if not tensor.is_cpu
        ]
        future: torch.futures.Future[Any] = torch.futures.Future(devices=devices)
        future.set_result(self._result)
        return future


class HostCopies(ProcessGroup):
    """A group that copies tensors to host memory, lets gloo work on them, and copies them back.

    Args:
        gloo: Group of gloo with the same ranks.
        rank: Number of this rank in the group.
        size: Number of ranks in the group.
    """

    def __init__(self, gloo: Any, rank: int, size: int) -> None:
        super().__init__(rank, size)  # pyright: ignore[reportCallIssue]
        self._gloo = gloo
        self._name = ""

    def getBackendName(self) -> str:  # noqa: N802  the name in PyTorch
        """Return the name of the backend."""
        return NAME

    def setGroupName(self, name: str) -> None:  # noqa: N802
        """Store the name of the group."""
        self._name = name

    def getGroupName(self) -> str:  # noqa: N802
        """Return the name of the group."""
        return self._name

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        """Ignore the description of the group."""

    def allreduce(self, tensors: Sequence[torch.Tensor], opts: Any) -> Work:
        """Reduce tensors in place."""
        return self._run("allreduce", tensors, opts)

    def broadcast(self, tensors: Sequence[torch.Tensor], opts: Any) -> Work:
        """Replace tensors by those of one rank."""
        return self._run("broadcast", tensors, opts)

    def barrier(self, opts: Any) -> Work:
        """Begin a barrier of the CPUs."""
        return self._gloo.barrier(opts)

    def _run(self, name: str, tensors: Sequence[torch.Tensor], opts: Any) -> Work:
        copies = [tensor.cpu() for tensor in tensors]
        getattr(self._gloo, name)(copies, opts).wait()
        for tensor, copied in zip(tensors, copies, strict=True):
            tensor.copy_(copied)
        return CopiedWork(tensors)
