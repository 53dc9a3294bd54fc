"""Conversions, such as `.half()`, of modules whose parameters are tensors without memory."""

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
    """Allow the user's functions to convert the modules that they make, for example by `.half()`.

    To convert a parameter, PyTorch swaps the parameter with a converted copy. The swap fails for
    fake tensors (tensors without memory): after the first operator, PyTorch's fake mode holds weak
    references to them. While this context is open, the converted copy replaces the parameter
    instead. Modules that shared the old parameter then share the converted copy.
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
