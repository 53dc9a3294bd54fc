"""Conversions of modules whose parameters are fake tensors."""

# PyTorch's parameters and hooks are only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator

import torch
from torch import Tensor, nn


@contextlib.contextmanager
def conversions() -> Generator[None]:
    """Allow factories to convert the modules that they make, for example by `.half()`.

    To convert a fake parameter, PyTorch swaps the parameter with a converted copy. PyTorch's swap
    of two parameters fails if the fake mode has a weak reference to either parameter, which is the
    case after the first operator. In the context of `conversions`, a new parameter replaces the old
    parameter. Modules that shared the old parameter share the new parameter.
    """
    before = nn.Module._apply
    replaced: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}

    def apply(self: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        if recurse:
            for child in self.children():
                child._apply(fn)
        for name, old in self._parameters.items():
            if old is not None:
                with torch.no_grad():
                    new = replaced.get(id(old)) or (old, nn.Parameter(fn(old), old.requires_grad))
                self._parameters[name] = replaced.setdefault(id(old), new)[1]
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    nn.Module._apply = apply
    try:
        yield
    finally:
        nn.Module._apply = before
