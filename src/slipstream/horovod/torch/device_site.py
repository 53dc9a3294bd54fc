"""Site of the operations on one device: streams, the order of their commands, and memory.

All commands of an operation are enqueued when the operation starts, on streams of the site:

- The stream "start" waits for the submission of the tensors. It packs the tensors, and the engine's
  operation begins after it.
- The stream "results" waits for the operation, and writes the results.

So no command that users enqueue between submission and synchronize() is delayed.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch

from slipstream import comm
from slipstream.horovod.fusion import ReadyTensor
from slipstream.horovod.request import HOST, Request, Residual
from slipstream.horovod.torch.device_group import DeviceCollectives, DeviceWork
from slipstream.torch.cuda.kinds import kind_of

_FIRST = -1  # priority of the streams: before those that compute


class DeviceSite:
    """Implementation of `horovod.sites.Site` for one device.

    The memory of an operation is kept until the device has done all its commands, so users may drop
    tensors and handles at any time.

    Args:
        group: Ranks of the process set.
        device: Device of the tensors.
    """

    finishes_together = True

    def __init__(self, group: comm.Group, device: torch.device) -> None:
        self.group = DeviceCollectives(group, device)
        self.rank, self.size = group.rank, group.size
        self._device, self._module = device, kind_of(device).module
        self._start = self._module.Stream(device, priority=_FIRST)
        self._results = self._module.Stream(device, priority=_FIRST)
        # Events after which the memory of operations may be freed, in the order of the results.
        self._in_flight: deque[tuple[torch.Event, object]] = deque()

    @contextlib.contextmanager
    def starting(self, requests: Sequence[Request]) -> Generator[None]:
        """Let functions on arrays run on the site's stream, after the submission of requests."""
        self.release_done()
        for event in {id(request.after): request.after for request in requests}.values():
            if event is not None:
                self._start.wait_event(event)
        with torch.no_grad(), self._module.stream(self._start):
            yield

    def begin(
        self,
        members: Sequence[ReadyTensor],
        work: DeviceWork | None,
        finish: Callable[[], Sequence[Any]],
    ) -> None:
        """Enqueue the results of an operation, and pass them to the handles of its tensors."""
        self._results.wait_stream(self._start)
        with self._module.stream(self._results):
            if work is not None:
                work.wait()
            results = finish()
            landed = self._results.record_event()
        requests = [member.request for member in members]
        self._in_flight.append((landed, (work, finish, requests, results)))
        for member, result in zip(members, results, strict=True):
            if member.handle is not None:
                tensors = new_tensors(member.request, result)
                landing = Landing(self._device, landed, work, tensors)
                member.handle.begin(landing, lambda result=result: result, landing.follow)

    def zeros(self, dtype: str, shape: Sequence[int]) -> torch.Tensor:
        """Return a new tensor of zeros on the device, for commands of the site."""
        with self._module.stream(self._start):
            return torch.zeros(tuple(shape), dtype=getattr(torch, dtype), device=self._device)

    def losses(self, residual: Residual) -> torch.Tensor:
        """Return the tensor of a residual, on the device or on the CPU, where the codec runs."""
        if self.group.encodes:
            return residual.on(self._device.type, self.zeros)
        return residual.on(HOST, _zeros_of_host)

    @property
    def fuses_losses(self) -> bool:
        """Whether the device encodes, so that residuals can be packed as tensors are."""
        return self.group.encodes

    def release_done(self) -> None:
        """Release the memory of operations that the device has done; does not block."""
        while self._in_flight and self._in_flight[0][0].query():
            self._in_flight.popleft()

    def close(self) -> None:
        """Leave the group, and block until the device uses no memory of operations."""
        self.group.close()
        self._results.synchronize()
        self._in_flight.clear()


class Landing:
    """Results of an operation on a device, as the handle of a tensor sees them.

    Args:
        device: Device of the results.
        landed: Event after which the results are in the device's memory.
        work: Operation; None if it is done.
        tensors: Tensors of the result whose memory belongs to a stream of the site.
    """

    def __init__(
        self,
        device: torch.device,
        landed: torch.Event,
        work: DeviceWork | None,
        tensors: Sequence[torch.Tensor],
    ) -> None:
        self._device = device
        self._landed, self._tensors = landed, tensors
        self._handles = () if work is None else work.handles

    def done(self) -> bool:
        """Return whether the results are in the device's memory, or the operation has failed."""
        return self._landed.query()

    def wait(self) -> None:
        """Block until the engine has exchanged the data.

        Raises:
            PeerError: A rank is gone.
        """
        for handle in self._handles:
            handle.wait()

    def follow(self) -> None:
        """Make the current stream wait for the results."""
        stream = kind_of(self._device).module.current_stream(self._device)
        stream.wait_event(self._landed)
        for tensor in self._tensors:
            tensor.record_stream(stream)


def new_tensors(request: Request, result: Any) -> list[torch.Tensor]:
    """Return the tensors of a result that the site has made, not the user or the submission."""
    made = result[0] if request.kind == "all_to_all" else result
    return [] if made is None or made is request.output else [made]


def _zeros_of_host(dtype: str, shape: Sequence[int]) -> torch.Tensor:
    return torch.zeros(tuple(shape), dtype=getattr(torch, dtype))
