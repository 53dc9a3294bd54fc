"""Ranges (named spans of time), as which PyTorch's profiler shows operations."""

# PyTorch has no public, typed way to record a range that ends in another thread.
# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

is_enabled: Callable[[], bool] = torch._C._autograd._profiler_enabled


class ProfilerRange:
    """A named span of time in PyTorch's profiler. It begins when the object is created.

    The range usually ends in another thread, so the profiler shows it as asynchronous. The profiler
    only records events of threads that have its thread-local state. Therefore a callback of PyTorch
    ends the range; the callback first copies the state to the thread that calls `end`.

    Args:
        name: Name of the range.
        inputs: Tensors that the profiler shows as the operation's arguments.
    """

    def __init__(self, name: str, inputs: Sequence[torch.Tensor]) -> None:
        record: Any = torch._C._autograd._record_function_with_args_enter(name, *inputs)
        self._complete: torch.futures.Future[None] = torch.futures.Future()
        self._recorded = torch.ops.profiler._call_end_callbacks_on_jit_fut._RecordFunction(
            record, self._complete
        )

    def end(self) -> None:
        """End the range; any thread may call this method."""
        self._complete.set_result(None)

    def wait(self) -> None:
        """Block until the profiler has recorded the end of the range."""
        self._recorded.wait()
