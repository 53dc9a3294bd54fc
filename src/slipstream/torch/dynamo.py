"""Exclusion of the engine from torch.compile, which would trace the engine as model code."""

from __future__ import annotations

from types import FunctionType
from typing import Any, TypeVar, cast

import torch

T = TypeVar("T", bound=type)


def keep_out(cls: T) -> T:
    """Mark the methods of a class, so that Dynamo traces neither them nor the functions they call.

    The marks do not slow down calls, because PyTorch checks them only when a compiled program
    enters a frame. `torch.compiler.disable` has the same effect, but adds a wrapper to each call
    and imports Dynamo, which takes a second.

    Args:
        cls: Class whose own methods are marked. PyTorch before 2.7 has no such marks; there,
            `keep_out` does nothing.

    Returns:
        The class.
    """
    # PyTorch has no stubs for this module.
    frames = cast("Any", torch._C)._dynamo.eval_frame  # pyright: ignore[reportPrivateUsage]
    if not hasattr(frames, "set_code_exec_strategy"):
        return cls
    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
    for attribute in vars(cls).values():
        if isinstance(attribute, FunctionType):
            frames.set_code_exec_strategy(attribute.__code__, skip)
            vars(attribute)["_torchdynamo_disable"] = True  # forbids inlining too
    return cls
