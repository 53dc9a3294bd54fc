"""Operations in PyTorch's profiler."""

# PyTorch has no public, typed way to record a range that ends in another thread.
# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

is_enabled: Callable[[], bool] = torch._C._autograd._profiler_enabled


class ProfilerRange:
    """A range in PyTorch's profiler, which begins now.

    It ends in another thread, by which the profiler knows it as asynchronous. The profiler sees
    what threads do that carry its state; PyTorch's own callback takes that state along.
    """

    def __init__(self, name: str, inputs: Sequence[torch.Tensor]) -> None:
        record: Any = torch._C._autograd._record_function_with_args_enter(name, *inputs)
        self._complete: torch.futures.Future[None] = torch.futures.Future()
        self._recorded = torch.ops.profiler._call_end_callbacks_on_jit_fut._RecordFunction(
            record, self._complete
        )

    def end(self) -> None:
        """End the range, from another thread than began it."""
        self._complete.set_result(None)

    def wait(self) -> None:
        """Block until the profiler has seen the end."""
        self._recorded.wait()
