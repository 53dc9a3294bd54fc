"""Architectures from a user's function, named "package.module:make" or "path/to/file.py:make"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor, nn

from slipstream.errors import UsageError
from slipstream.forecast.trace.architectures.names import Architecture
from slipstream.user_modules import import_user_module, member


def architecture(
    text: str, *, shape: Sequence[int] | None, dtype: str, tokens: int | None
) -> Architecture:
    """Return the architecture of the PyTorch module that a user's function makes.

    The module is called with the result of a second function, which gets the number of samples. The
    second function is named in `text` after a comma, or is the attribute `inputs` of the first
    function. Without a second function, the module is called with one tensor of zeros: int64 tokens
    of shape (batch, tokens), or a tensor of shape (batch, *shape).

    Args:
        text: Text "place:make" or "place:make,inputs": a module or file, the function that makes
            the PyTorch module, and the second function.
        shape: Shape of one sample; None if `tokens` or a second function defines the input.
        dtype: Element type of the tensor of shape (batch, *shape), such as "float32" or "uint8".
        tokens: Number of tokens in a sequence; None if `shape` or a second function defines the
            input.

    Raises:
        UsageError: The module, file or function does not exist, fails on import or is not callable,
            or the input of the module is not defined, or is defined twice.
    """
    place, _, names = text.rpartition(":")
    module = import_user_module(place)
    name, _, inputs_name = names.partition(",")
    make = _function(module, place, name)
    inputs = _function(module, place, inputs_name) if inputs_name else None
    if inputs is None:
        attribute: Any = getattr(make, "inputs", None)
        inputs = attribute if callable(attribute) else None
    checked = partial(_made, text, make)
    if inputs is not None:
        if shape is not None or tokens is not None:
            raise UsageError(f"{text} defines its own inputs; leave the shape and the tokens out")
        return Architecture(name, (), checked, partial(_called, text, inputs), "example")
    if tokens is not None:
        batch = partial(zeros, shape=(tokens,), dtype=torch.int64)
        return Architecture(name, (), checked, batch, "sequence", f"{tokens} tokens of a sequence")
    if shape is None:
        raise UsageError(
            f"{text}: the shape of a sample is unknown; set the shape, such as 3,224,224, or the "
            f"tokens of a sequence, or name a function that makes a batch: {text},inputs"
        )
    batch = partial(zeros, shape=tuple(shape), dtype=dtype_of(dtype))
    return Architecture(name, (), checked, batch, "image" if len(shape) == 3 else "example")


def dtype_of(name: str) -> torch.dtype:
    """Return the PyTorch dtype with a given name.

    Args:
        name: Name such as "float32".

    Raises:
        UsageError: No dtype has that name.
    """
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise UsageError(
            f"there is no dtype {name!r}; allowed: PyTorch's, such as float32 or uint8"
        )
    return dtype


def _function(module: ModuleType, place: str, name: str) -> Callable[..., Any]:
    function = member(module, place, name)
    if isinstance(function, nn.Module):
        raise UsageError(f"{place}:{name} is a module; name a function that makes it")
    if not callable(function):
        raise UsageError(f"{place}:{name} is a {type(function).__name__}, not a function")
    return function


def _made(text: str, make: Callable[..., Any]) -> nn.Module:
    module = make()
    if not isinstance(module, nn.Module):
        kind = type(module).__name__
        raise UsageError(f"{text} returned a {kind}; it must make a module, torch.nn.Module")
    return module


def _called(text: str, inputs: Callable[[int], Any], batch: int) -> tuple[Any, ...]:
    """Return the module's arguments, which the user's function makes for a batch size."""
    arguments = inputs(batch)
    if isinstance(arguments, tuple | list):
        return tuple(cast("Sequence[Any]", arguments))
    if isinstance(arguments, Tensor):
        return (arguments,)
    kind = type(arguments).__name__
    raise UsageError(
        f"the inputs of {text} are a {kind}; they must be a tensor, or a tuple of tensors"
    )


def zeros(batch: int, *, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return a tuple of one tensor of zeros, of shape (batch, *shape).

    Args:
        batch: Number of samples.
        shape: Shape of a sample.
        dtype: Element type of the tensor.
    """
    return (torch.zeros(batch, *shape, dtype=dtype),)
