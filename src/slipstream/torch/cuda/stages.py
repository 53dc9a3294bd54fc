"""Collectives in several stages; the later stages run on streams of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from typing import NamedTuple, cast

import torch

from slipstream import _core
from slipstream.torch.collectives import RunOptions, Submission
from slipstream.torch.cuda.groups import CudaGroups
from slipstream.torch.cuda.kinds import kind_of


class ExchangeRanks(NamedTuple):
    """The ranks that exchange data in all stages of a collective, and the options of the stages.

    Args:
        groups: Groups of the engine, one for each GPU of this process. The members are the ranks
            that exchange data.
        size: Number of ranks that exchange data.
        rank: Rank of this process, from 0 to `size` - 1.
        options: Options of the engine's operations.
        priority: Priority of the engine's operations on the network (default 0).
    """

    groups: CudaGroups
    size: int
    rank: int
    options: RunOptions
    priority: int = 0

    def all_to_all(self, source: torch.Tensor, target: torch.Tensor) -> _core.DeviceHandle:
        """Begin to exchange parts of equal size, after the commands of the current stream."""
        group = self.groups.on_current_stream(source.device)
        count = source.numel() // self.size
        return group.all_to_all(
            source.data_ptr(),
            target.data_ptr(),
            count,
            _core.DType.UINT8,
            priority=self.priority,
            **self.options,
        )

    def all_gather(self, source: torch.Tensor, target: torch.Tensor) -> _core.DeviceHandle:
        """Begin to gather the bytes of all ranks, after the commands of the current stream."""
        group = self.groups.on_current_stream(source.device)
        return group.all_gather(
            source.data_ptr(),
            target.data_ptr(),
            source.numel(),
            _core.DType.UINT8,
            priority=self.priority,
            **self.options,
        )


@contextlib.contextmanager
def later_stages(
    groups: CudaGroups, device: torch.device, stage: str, after: Sequence[torch.Stream] = ()
) -> Generator[torch.Stream]:
    """Within this context, run commands on the stream of a stage.

    The commands run after all commands that the current stream contains when the context begins.
    After an exception, the current stream waits for the stage: the exception frees tensors, whose
    memory the current stream may use again.

    Args:
        groups: Groups of the engine for the ranks that exchange data.
        device: GPU of the tensors.
        stage: Name of the stage. Each name has a stream of its own, so stages with different names
            do not wait for each other.
        after: Further streams that are treated like the current one (default: none).
    """
    kind = kind_of(device)
    stream = groups.stage(device, stage)
    before = (kind.module.current_stream(device), *after)
    for each in before:
        stream.wait_stream(each)
    with kind.module.stream(stream):
        try:
            yield stream
        except BaseException:
            for each in before:
                each.wait_stream(stream)
            raise


def wait_for(handle: _core.DeviceHandle, stream: torch.Stream) -> None:
    """Make a stream wait for an operation of the engine."""
    handle.wait_on(kind_of(stream.device).handle(stream))


def wait_for_all(submission: Submission, stream: torch.Stream) -> None:
    """Make a stream wait for the results of a submission that has no copies."""
    if submission.landed is not None:
        stream.wait_event(submission.landed)
        return
    for handle in submission.handles:
        wait_for(cast("_core.DeviceHandle", handle), stream)
