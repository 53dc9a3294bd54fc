"""Modules from functions of the user's code: "package.module:make" or "path/to/file.py:make"."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor, nn

from slipstream.errors import UsageError
from slipstream.forecast.trace.architectures.names import Architecture

_SPELLING = "say package.module:function or path/to/file.py:function"


def architecture(
    text: str, *, shape: Sequence[int] | None, dtype: str, tokens: int | None
) -> Architecture:
    """Returns what a function of the user makes, as an architecture.

    Its module is called with what `make.inputs(batch)` gives, or a second function that is named
    after a comma; else with one tensor: tokens (batch, tokens) of int64, or (batch, *shape).

    Args:
        text: module or file, ":", the function, and perhaps ",inputs".
        shape: of one sample.
        dtype: of that tensor, as "float32" or "uint8".
        tokens: of a sequence.

    Raises:
        UsageError: there is no such module, file or function, it fails on import, is not callable,
            or nothing says what its module is called with.
    """
    place, _, names = text.rpartition(":")
    module = _module(place)
    name, _, inputs_name = names.partition(",")
    make = _function(module, place, name)
    inputs = _function(module, place, inputs_name) if inputs_name else None
    if inputs is None:
        found: Any = getattr(make, "inputs", None)
        inputs = found if callable(found) else None
    checked = partial(_made, text, make)
    if inputs is not None:
        if shape is not None or tokens is not None:
            raise UsageError(f"{text} has inputs of its own, which have their shape: say no other")
        return Architecture(name, (), checked, partial(_called, text, inputs), "example")
    if tokens is not None:
        given = partial(zeros, shape=(tokens,), dtype=torch.int64)
        return Architecture(name, (), checked, given, "sequence", f"{tokens} tokens of a sequence")
    if shape is None:
        raise UsageError(
            f"{text}: of what shape is a sample? Say it, as shape 3,224,224, or the tokens of a "
            f"sequence, or a function of the batch size that makes the inputs: {text},inputs"
        )
    given = partial(zeros, shape=tuple(shape), dtype=dtype_of(dtype))
    return Architecture(name, (), checked, given, "image" if len(shape) == 3 else "example")


def dtype_of(name: str) -> torch.dtype:
    """Returns a dtype of PyTorch.

    Args:
        name: as "float32".

    Raises:
        UsageError: there is none of that name.
    """
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise UsageError(f"there is no dtype {name!r}; say one of PyTorch's, as float32 or uint8")
    return found


def _module(place: str) -> ModuleType:
    """Imports a module of a package or a file; those beside it and in this folder are found."""
    is_file = place.endswith(".py")
    path = Path(place)
    if is_file and not path.is_file():
        raise UsageError(f"there is no file {place}; {_SPELLING}")
    with _importing_from(path.resolve().parent if is_file else Path.cwd()):
        try:
            return _of_file(path) if is_file else importlib.import_module(place)
        except SystemExit as error:  # of argparse, which reads what this command was told
            raise UsageError(
                f"{place} ended as it was imported ({error}): put what it runs by itself, as the"
                " reading of its arguments, under if __name__ == '__main__':"
            ) from error
        except Exception as error:  # the user's code has any
            reason = f"{type(error).__name__}: {error}"
            raise UsageError(f"{place} cannot be imported: {reason}; {_SPELLING}") from error


def _of_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and the like look for the module that they are in.
    before = sys.modules.get(path.stem)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    finally:
        if before is not None:
            sys.modules[path.stem] = before
    return module


@contextmanager
def _importing_from(folder: Path) -> Generator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _function(module: ModuleType, place: str, name: str) -> Callable[..., Any]:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{place} has no {name!r}; {_SPELLING}")
        found = getattr(found, part)
    if isinstance(found, nn.Module):
        raise UsageError(f"{place}:{name} is a module: say a function that makes it")
    if not callable(found):
        raise UsageError(f"{place}:{name} is a {type(found).__name__}, not a function")
    return found


def _made(text: str, make: Callable[..., Any]) -> nn.Module:
    module = make()
    if not isinstance(module, nn.Module):
        kind = type(module).__name__
        raise UsageError(f"{text} returned a {kind}; it must make a module, torch.nn.Module")
    return module


def _called(text: str, inputs: Callable[[int], Any], batch: int) -> tuple[Any, ...]:
    """Returns the arguments that a function of the user gives for a batch."""
    given = inputs(batch)
    if isinstance(given, tuple | list):
        return tuple(cast("Sequence[Any]", given))
    if isinstance(given, Tensor):
        return (given,)
    kind = type(given).__name__
    raise UsageError(
        f"the inputs of {text} are a {kind}; they must be a tensor, or a tuple of them"
    )


def zeros(batch: int, *, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Returns one tensor (batch, *shape).

    Args:
        batch: samples.
        shape: of each.
        dtype: of the tensor.
    """
    return (torch.zeros(batch, *shape, dtype=dtype),)
