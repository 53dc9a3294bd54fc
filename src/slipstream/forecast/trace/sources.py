"""Models that a forecast can trace, found by names or paths that users write.

from slipstream.forecast.trace.sources import source

workload = source("llama/config.json", tokens=4096).trace(1, precision="bf16")
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from slipstream.errors import SlipstreamError, UsageError
from slipstream.forecast.simulate.job import Precision
from slipstream.forecast.trace import factories, huggingface
from slipstream.forecast.trace.architectures import language
from slipstream.forecast.trace.architectures.encoders import BERT_BASE
from slipstream.forecast.trace.architectures.names import Architecture, Samples, find
from slipstream.forecast.trace.failure import failure
from slipstream.forecast.trace.module import trace
from slipstream.forecast.trace.precision import DTYPES
from slipstream.forecast.trace.recorder import tensors_in
from slipstream.forecast.work.workload import Workload


class Tracer(Protocol):
    """A function that traces a model at a given micro-batch size."""

    def __call__(
        self, samples: int, *, precision: Precision = "fp32", whole: bool = False
    ) -> Workload:
        """Return the workload of one forward and backward pass.

        The call blocks for some milliseconds per operator, so for seconds if there are thousands of
        operators.

        Args:
            samples: Number of samples in the micro-batch, at least 1.
            precision: Precision of matrix products (default "fp32"); "fp16" and "bf16" use
                autocast.
            whole: Whether all floating-point numbers are in 16 bits, parameters included (default
                False).

        Raises:
            UsageError: The model cannot be made, or cannot run on the inputs of the micro-batch.
        """
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """A model that can be traced.

    Args:
        name: Human-readable name of the model.
        unit: Name for one sample: "image", "sequence", "token" or "example".
        trace: Function that traces the model at a given micro-batch size.
        made: Architecture, with functions that make the module and a batch of inputs; None for a
            model in an ONNX file.
        tokens: Number of tokens in a sample; None if a sample has no tokens.
    """

    name: str
    unit: Samples
    trace: Tracer
    made: Architecture | None = None
    tokens: int | None = None

    def whole(self, precision: Precision) -> bool:
        """Return whether the whole model trains in 16 bits, with copies of parameters in fp32.

        Language models train in 16 bits; all other models use autocast.

        Args:
            precision: Precision of matrix products.
        """
        return precision in ("fp16", "bf16") and self.unit in ("sequence", "token")


def source(
    text: str,
    *,
    shape: Sequence[int] | None = None,
    dtype: str = "float32",
    tokens: int | None = None,
) -> Source:
    """Return the model that a user names.

    Args:
        text: Name of the model, in one of four forms: a function that makes a module,
            "package.module:make" or "path/to/file.py:make"; an ONNX file; a config.json of Hugging
            Face or its folder; or the name of an architecture. A function can define the arguments
            of its module: as an attribute, `make.inputs(batch)`, or as a second function of the
            same module, "package.module:make,inputs".
        shape: Shape of one sample; the shape of an image is (channels, height, width). The shape
            may be set for functions that define no inputs, for ONNX files with open dimensions, and
            for architectures that read images.
        dtype: PyTorch's name of the element type of the input that has `shape` (default "float32").
        tokens: Number of tokens in a sequence (default None: the number that the model is trained
            with).

    Raises:
        UsageError: The text names no model, or an option does not apply to the model.
        ConfigError: A config of Hugging Face is unreadable, unknown or incomplete.
    """
    _check(shape, tokens)
    path = Path(text)
    if path.suffix == ".onnx":
        return _onnx(path, shape, tokens)
    if ":" in text:
        made = factories.architecture(text, shape=shape, dtype=dtype, tokens=tokens)
        return _traced(made)
    if path.suffix == ".py":
        raise UsageError(f"{text} names no function; write {text}:function")
    if path.suffix == ".json" or (path / "config.json").is_file():
        if shape is not None:
            raise UsageError(f"{text} defines the shape of its inputs; leave the shape out")
        return _traced(huggingface.architecture(path, tokens))
    return _named_source(text, None if shape is None else tuple(shape), tokens)


def _check(shape: Sequence[int] | None, tokens: int | None) -> None:
    if shape is not None and (len(shape) == 0 or any(size < 1 for size in shape)):
        raise UsageError(f"shape is {tuple(shape)}; every size of a sample must be at least 1")
    if tokens is not None and tokens < 1:
        raise UsageError(f"tokens is {tokens}; a sequence has at least 1")


def _onnx(path: Path, shape: Sequence[int] | None, tokens: int | None) -> Source:
    try:
        from slipstream.forecast.trace import onnx_file
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise UsageError(f"{path}: reading it needs the package onnx: pip install onnx") from error
    model = onnx_file.read(path)

    def run(samples: int, *, precision: Precision = "fp32", whole: bool = False) -> Workload:
        batch = onnx_file.Batch(samples, shape, tokens)
        return onnx_file.workload(model, path.stem, batch, precision=precision, whole=whole)

    return Source(path.stem, "example" if tokens is None else "sequence", run, tokens=tokens)


# The cache has four entries, because the workload of a large model takes ten megabytes.
@lru_cache(maxsize=4)
def _named_source(text: str, shape: tuple[int, ...] | None, tokens: int | None) -> Source:
    """Return an architecture that is found by its name, and that caches its last traces."""
    named = _traced(_named(text, shape, tokens))
    return replace(named, trace=lru_cache(maxsize=4)(named.trace))


def _named(text: str, shape: tuple[int, ...] | None, tokens: int | None) -> Architecture:
    try:
        architecture = find(text)
    except UsageError as error:
        if Path(text).is_dir():
            raise UsageError(f"the folder {text} has no config.json of Hugging Face") from error
        raise UsageError(
            f"{error}. A model can also be a function that makes it, package.module:make or "
            "file.py:make, an .onnx file, or a config.json of Hugging Face"
        ) from error
    if shape is not None:
        if (
            architecture.samples_are != "image"
            or len(shape) != 3
            or architecture.name.startswith("face-")
        ):
            raise UsageError(f"{architecture.name} defines its own inputs; leave the shape out")
        images = partial(factories.zeros, shape=shape, dtype=torch.float32)
        architecture = replace(architecture, inputs=images)
    return architecture if tokens is None else _of_length(architecture, tokens)


def _of_length(architecture: Architecture, tokens: int) -> Architecture:
    """Return a copy of an architecture that reads sequences of a given number of tokens."""
    if "length" not in inspect.signature(architecture.inputs).parameters:
        raise UsageError(f"{architecture.name} reads no sequences; leave the number of tokens out")
    if architecture.name.startswith("bert-") and tokens > BERT_BASE.positions:
        raise UsageError(
            f"tokens is {tokens}, but {architecture.name} has only {BERT_BASE.positions} positions"
        )
    make = architecture.make
    if architecture.name in language.SIZES:
        make = partial(make, positions=tokens)
    note = f"{tokens} tokens of a sequence"
    return replace(
        architecture, make=make, inputs=partial(architecture.inputs, length=tokens), note=note
    )


def _traced(architecture: Architecture) -> Source:
    def run(samples: int, *, precision: Precision = "fp32", whole: bool = False) -> Workload:
        if samples < 1:
            raise UsageError(f"samples is {samples}; a micro-batch has at least 1")
        lower = DTYPES[precision]
        inputs = partial(_inputs, architecture.inputs, samples, lower if whole else None)
        try:
            return trace(
                architecture.make,
                inputs,
                name=architecture.name,
                samples=samples,
                autocast=None if whole else lower,
                dtype=lower if whole else None,
            )
        except SlipstreamError:
            raise
        except Exception as error:  # the user's code may raise anything
            raise UsageError(failure(error, architecture.name, samples)) from error

    tokens = _tokens(architecture)
    return Source(architecture.name, architecture.samples_are, run, architecture, tokens)


def _tokens(architecture: Architecture) -> int | None:
    """Return the number of tokens in a sample, or None if a sample has no tokens."""
    if architecture.samples_are == "token":
        return 1
    if architecture.samples_are != "sequence":
        return None
    with FakeTensorMode():
        batch = architecture.inputs(1)
    sizes = [x.shape[1] for x in tensors_in(batch) if x.dim() == 2 and not x.is_floating_point()]
    return max(sizes, default=None)


def _inputs(
    make: Callable[..., tuple[Any, ...]], samples: int, dtype: torch.dtype | None
) -> tuple[Any, ...]:
    """Return the module's arguments; cast floating-point tensors to `dtype` if it is set."""
    return tuple(
        x.to(dtype) if dtype and isinstance(x, torch.Tensor) and x.is_floating_point() else x
        for x in make(samples)
    )
