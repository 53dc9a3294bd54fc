"""Modules that PyTorch's Inductor compiles, whose weights can be released."""

# PyTorch leaves some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from slipstream.errors import UsageError


class CompiledModule:
    """A module that Inductor compiles at the first call. `close` releases its weights.

    PyTorch never releases weights that Inductor freezes: the modules that Inductor generates stay
    in a list of PyTorch, and a compiled function stays among the globals of its caller if a part of
    the model cannot be compiled (PyTorch 2.13). `close` therefore removes the weights from both.

    Args:
        module: Module of PyTorch, or any function of tensors.
    """

    def __init__(self, module: Callable[..., Any]) -> None:
        import torch

        self._traced: list[weakref.ref[Any]] = []
        self._generated: list[ModuleType] = []
        self._function = _with_own_code(module)
        self._call: Any = torch.compile(self._function, backend=self._compile)

    def __call__(self, *inputs: Any) -> Any:
        """Run the module; the first call compiles it."""
        if self._call is None:
            raise UsageError("the executable is closed; prepare the model again")
        return self._call(*inputs)

    def close(self) -> None:
        """Release the weights and the generated code. A second call does nothing."""
        if self._call is None:
            return
        from torch._dynamo.eval_frame import remove_from_cache

        remove_from_cache(self._function)
        self._call = self._function = None
        for reference in self._traced:
            traced = reference()
            if traced is not None:
                for members in (traced._parameters, traced._buffers, traced._modules):
                    members.clear()
        for generated in self._generated:
            _remove_tensors(generated)
        self._traced, self._generated = [], []

    def _compile(self, traced: Any, inputs: Any) -> Any:
        """Compile a part of the module, as the backend of `torch.compile`; note what has weights.

        PyTorch compiles one part at a time, so the modules that are new belong to this part.
        """
        import torch
        from torch._inductor.codecache import PyCodeCache

        self._traced.append(weakref.ref(traced))
        before = set(map(id, PyCodeCache.modules))
        try:
            return torch._dynamo.lookup_backend("inductor")(traced, inputs)
        finally:
            self._generated += [item for item in PyCodeCache.modules if id(item) not in before]


def _with_own_code(module: Callable[..., Any]) -> Any:
    """Return a function that calls the module, with a code object that no other function has.

    PyTorch keeps compiled code by code object, and modules of one class share theirs. It would run
    the ninth module of a class uncompiled (`torch._dynamo.config.recompile_limit`).
    """

    def forward(*inputs: Any) -> Any:
        return module(*inputs)

    forward.__code__ = forward.__code__.replace()
    return forward


def _remove_tensors(generated: ModuleType) -> None:
    """Remove the constants of a model from a module that Inductor generated."""
    import torch

    for name, value in list(vars(generated).items()):
        if isinstance(value, torch.Tensor):
            delattr(generated, name)
