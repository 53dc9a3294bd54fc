"""Ranges that show operations in PyTorch's profiler."""

# PyTorch has no public, typed way to record a range that ends in another thread.
# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

is_enabled: Callable[[], bool] = torch._C._autograd._profiler_enabled


class ProfilerRange:
    """Range in PyTorch's profiler, which begins when the object is created.

    The range ends in another thread, so the profiler shows it as asynchronous. The profiler records
    only threads that have its state; PyTorch's own callback carries the state to the other thread.

    Args:
        name: Name of the range.
        inputs: Tensors that the profiler shows as arguments.
    """

    def __init__(self, name: str, inputs: Sequence[torch.Tensor]) -> None:
        record: Any = torch._C._autograd._record_function_with_args_enter(name, *inputs)
        self._complete: torch.futures.Future[None] = torch.futures.Future()
        self._recorded = torch.ops.profiler._call_end_callbacks_on_jit_fut._RecordFunction(
            record, self._complete
        )

    def end(self) -> None:
        """End the range; another thread than the constructor's may call this."""
        self._complete.set_result(None)

    def wait(self) -> None:
        """Block until the profiler has recorded the end of the range."""
        self._recorded.wait()
