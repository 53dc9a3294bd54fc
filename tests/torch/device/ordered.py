"""Backend "ordered": collectives in the order in which NCCL runs them, on the test device.

A collective runs in a stream of the group, after all that the caller's stream has to do. A work
makes the stream that waits for it wait for the end of the collective, and futures are complete at
once. The numbers come from gloo, whose collectives are called as kernels of the stream.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import teststream
import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed.distributed_c10d import Work

NAME = "ordered"
NO_LIMIT = timedelta(0)


def register() -> None:
    """Make the backend known to PyTorch."""
    dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu", teststream.NAME])


def create(options: Any, _: Any) -> OrderedGroup:
    """Create a group for PyTorch."""
    rank, size = options.group_rank, options.group_size
    store = dist.PrefixStore(f"{options.group_id}/ordered", options.store)
    return OrderedGroup(dist.ProcessGroupGloo(store, rank, size, options.timeout), rank, size)


class OrderedWork(Work):
    """Work of a collective in a stream."""

    def __init__(self, result: Sequence[Any], stream: torch.Stream) -> None:
        super().__init__()
        self._result, self._stream = result, stream
        self._end = stream.record_event()

    def wait(self, timeout: timedelta = NO_LIMIT) -> bool:
        """Make the current stream wait; return at once."""
        teststream.current_stream().wait_event(self._end)
        return True

    def synchronize(self) -> None:
        """Make the current stream wait."""
        self.wait()

    def is_completed(self) -> bool:
        """Return whether the collective has ended."""
        return self._end.query()

    def result(self) -> Sequence[Any]:
        """Return the outputs."""
        return self._result

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future that is complete, for streams that wait for it."""
        device = torch.device(teststream.NAME, 0)
        future: torch.futures.Future[Any] = torch.futures.Future(devices=[device])
        with self._stream:
            future.set_result(self._result)
        return future


class OrderedGroup(ProcessGroup):
    """Group whose collectives run in NCCL's order; `_add_methods` adds the collectives."""

    def __init__(self, gloo: Any, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._gloo, self._size = gloo, size
        self._streams: dict[str, torch.Stream] = {}
        self._name = ""

    def getBackendName(self) -> str:  # noqa: N802
        return NAME

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._name = name

    def getGroupName(self) -> str:  # noqa: N802
        return self._name

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        pass

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu"), torch.device(teststream.NAME)]

    def send(self, tensors: Sequence[torch.Tensor], peer: int, tag: int = 0) -> Work:
        """Send a tensor; messages to and from each rank have a stream."""
        return self._run("send", (tensors, peer, tag), f"to {peer}")

    def recv(self, tensors: Sequence[torch.Tensor], peer: int, tag: int = 0) -> Work:
        """Receive a tensor."""
        return self._run("recv", (tensors, peer, tag), f"from {peer}")

    def barrier(self, opts: Any) -> Work:
        """Begin a barrier of the CPUs."""
        return self._gloo.barrier(opts)

    def _run(self, name: str, arguments: Sequence[Any], stream_of: str = "all ranks") -> Work:
        tensors = list(_tensors(arguments))
        call = getattr(self._gloo, name)
        if all(tensor.is_cpu for tensor in tensors):
            return call(*arguments)
        if stream_of not in self._streams:
            self._streams[stream_of] = teststream.Stream()
        stream = self._streams[stream_of]
        views = [_map(each, teststream.kernel_view) for each in arguments]
        is_average = getattr(arguments[-1], "reduceOp", None) == dist.ReduceOp.AVG
        if is_average:  # gloo has none
            arguments[-1].reduceOp = dist.ReduceOp.SUM

        def kernel() -> None:
            call(*views).wait()
            for view in _tensors(views[0]) if is_average else ():
                view.div_(self._size)

        stream.wait_stream(teststream.current_stream())
        for tensor in tensors:
            tensor.record_stream(stream)
        with stream:
            teststream.launch(kernel)
        result = arguments[0]
        return OrderedWork([result] if isinstance(result, torch.Tensor) else result, stream)


def _map(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    return [_map(each, function) for each in value] if isinstance(value, (list, tuple)) else value


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        yield from itertools.chain.from_iterable(map(_tensors, value))


def _add_methods() -> None:
    """Add PyTorch's collectives, each under the name that the installed release has for it."""

    def collective(name: str) -> Any:
        return lambda self, *arguments: self._run(name, arguments)

    same = ("allreduce", "broadcast", "reduce", "allgather", "reduce_scatter", "gather", "scatter")
    for name in (*same, "allreduce_coalesced", "alltoall"):
        setattr(OrderedGroup, name, collective(name))
    for name, former in (
        ("all_gather_single", "_allgather_base"),
        ("reduce_scatter_single", "_reduce_scatter_base"),
        ("all_to_all_single", "alltoall_base"),
    ):
        known = name if hasattr(ProcessGroup, name) else former
        setattr(OrderedGroup, known, collective(former))


_add_methods()
