"""Keeps torch.compile out of the engine, which it would trace as if it were the model's code."""

from __future__ import annotations

from types import FunctionType
from typing import Any, TypeVar, cast

import torch

T = TypeVar("T", bound=type)


def keep_out(cls: T) -> T:
    """Mark the methods of a class, so that Dynamo runs them and all that they call as they are.

    A call costs nothing more: PyTorch looks at the mark as a compiled program enters a frame.
    `torch.compiler.disable` does the same with a wrapper, and imports Dynamo, which takes a second.

    Args:
        cls: Class whose own methods are marked. PyTorch before 2.7 has no such marks, and nothing
            is done.
    """
    # PyTorch has no stubs of it.
    frames = cast("Any", torch._C)._dynamo.eval_frame  # pyright: ignore[reportPrivateUsage]
    if not hasattr(frames, "set_code_exec_strategy"):
        return cls
    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
    for each in vars(cls).values():
        if isinstance(each, FunctionType):
            frames.set_code_exec_strategy(each.__code__, skip)
            vars(each)["_torchdynamo_disable"] = True  # not to be inlined either
    return cls
