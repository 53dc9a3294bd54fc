"""The protocol of engines: an engine turns a graph and a recipe into an executable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from slipstream.infer.graph.aligned import aligned
from slipstream.infer.graph.graph import Array, Graph

if TYPE_CHECKING:
    from typing_extensions import Self

Precision = Literal["fp32", "tf32", "bf16", "fp16", "int8", "int8-dynamic", "int8-weights"]
FLOATS: tuple[Precision, ...] = ("fp32", "tf32", "bf16", "fp16")
PRECISIONS: tuple[Precision, ...] = (*FLOATS, "int8", "int8-dynamic", "int8-weights")


class Recipe(BaseModel):
    """Complete instructions for an engine to run a graph; a package stores them as JSON.

    Args:
        engine: Name of the engine, one of `ENGINES` or "split".
        precision: Precision of the products, which are convolutions, matrix products and attention
            (default "fp32"). In tf32, the numbers are float32, and GPUs multiply their first 10 of
            23 binary digits. In int8, activations and weights are bytes. In int8-dynamic, the
            activations and weights of matrix products are bytes, and every call computes the ranges
            of its own activations. In int8-weights, only weights are bytes.
        rewrites: True (the default) if the graph went through Slipstream's rewrites; False if it is
            still the imported graph.
        streams: Number of calls that run at the same time, each on its share of the threads
            (default 1, which gives the least latency).
        ranges: Pair of real numbers by the name of a value: the least and the greatest number that
            the value's int8 form can represent. A value that has no range stays in floating point.
        shifts: Numbers to add to the bias of a product in int8 or int8-dynamic, one per output
            channel, by the name of the product's output. The shifts cancel the mean error that
            rounding the weights causes.
        rest: Precision of the products whose inputs have no range, if `precision` is "int8"
            (default "fp32"). "int8-dynamic" applies to matrix products only.
        parts: Parts of the graph in execution order, each with its recipe, for the engine "split".
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: str
    precision: Precision = "fp32"
    rewrites: bool = True
    streams: int = Field(default=1, ge=1, le=1024)
    ranges: dict[str, tuple[float, float]] = Field(default_factory=dict)
    shifts: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    rest: Literal["fp32", "bf16", "int8-dynamic"] = "fp32"
    parts: tuple[Part, ...] = ()


class Part(BaseModel):
    """A part of a graph.

    Args:
        end: Name of the value at which the part ends. Later parts read the value `end`, and no
            other value of the part. For the last part, `end` is "".
        recipe: Recipe of the part.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    end: str
    recipe: Recipe


class Executable(Protocol):
    """A graph that an engine has prepared."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return every output by its name, in arrays that belong to the caller.

        `inputs` must contain every input of the graph in its dtype and shape, as a C-contiguous
        array; `run` does not check this. Any number of threads may call `run` at the same time.
        Each call takes its own workers or its own request from a pool, so no call waits for
        another. The call blocks, and releases the GIL.
        """
        ...

    def buffer(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return a new array, with any content, from which `run` reads an input fastest."""
        ...

    @property
    def small(self) -> Mapping[str, Small]:
        """Form of each constant that the engine converts to fewer bits, by the constant's name.

        The engine may convert a constant for one node, and not for another node that reads it too.
        """
        ...

    def profile(self, inputs: Mapping[str, Array]) -> dict[str, float]:
        """Return the time in seconds of each step of one run, by the name of the step's output.

        A step is the call of one kernel, for one or more nodes of the graph. `profile` blocks like
        `run`. The result is empty if the engine does not measure its steps; see
        `Engine.measures_steps`.
        """
        ...

    def close(self) -> None:
        """Release threads and memory; no `run` may be in progress. A second call does nothing."""
        ...


class Small(BaseModel):
    """The form into which an engine converts a float32 constant before it computes with it.

    Args:
        dtype: Type of the converted numbers. For int8, each channel has a scale, which follows from
            the channel's largest number.
        axis: Axis of the channels (default 0).
        of_bytes: Whether the engine multiplies the int8 numbers by bytes (default True) or by
            floats (False); see `Weights.quantise`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dtype: Literal["int8", "bfloat16", "float16"]
    axis: int = 0
    of_bytes: bool = True


class Engine(Protocol):
    """An engine that runs graphs."""

    @property
    def name(self) -> str:
        """Name of the engine in recipes and on the command line."""
        ...

    @property
    def is_packable(self) -> bool:
        """Whether a package can store a model for this engine; if not, packages never use it."""
        ...

    @property
    def runs_rewritten(self) -> bool:
        """Whether the engine accepts graphs that went through Slipstream's rewrites."""
        ...

    @property
    def runs_imported(self) -> bool:
        """Whether the engine accepts imported graphs that went through no rewrite."""
        ...

    @property
    def mixes_dynamic(self) -> bool:
        """Whether one graph may have some products in int8 and others in int8-dynamic."""
        ...

    @property
    def runs_module(self) -> bool:
        """Whether the engine runs the PyTorch module of a model in place of its graph."""
        ...

    @property
    def measures_steps(self) -> bool:
        """Whether executables of this engine measure the time of each step."""
        ...

    @property
    def is_quick_to_prepare(self) -> bool:
        """Whether the engine prepares graphs so fast that calibration should run on this engine."""
        ...

    @property
    def kind(self) -> Literal["cpu", "cuda"]:
        """Where the engine computes: on the cores of this machine, or on a GPU of NVIDIA."""
        ...

    @property
    def overlapped_runs(self) -> int:
        """Number of simultaneous runs of one executable that keep the engine's device busy.

        It is 0 if the engine computes on cores, which simultaneous runs share.
        """
        ...

    def with_card(self, card: int) -> Engine:
        """Return an engine for the GPU of a number; an engine for cores returns `self`."""
        ...

    def with_module(self, module: Any) -> Engine:
        """Return an engine for a model's PyTorch module; an engine for graphs returns `self`."""
        ...

    def with_large_bytes(self, large_bytes: int) -> Engine:
        """Return an engine that does not copy constants of `large_bytes` or more in total."""
        ...

    def available(self) -> str | None:
        """Return None if the engine is usable here, else the reason and a remedy."""
        ...

    def precisions(self) -> tuple[Precision, ...]:
        """Return the precisions that work on this machine, if `available()` is None."""
        ...

    def prepare(self, graph: Graph, recipe: Recipe, threads: int) -> Executable:
        """Make a graph ready to run.

        Args:
            graph: Graph with fixed shapes, which went through Slipstream's rewrites if and only if
                `recipe.rewrites` is True.
            recipe: Recipe for this engine.
            threads: Number of threads of all streams together, 1 or more.

        Raises:
            UnsupportedError: the engine cannot run this graph in this precision; another engine or
                another precision may be able to.
        """
        ...


class GraphEngine:
    """Base class of engines, whose attributes fit an engine for imported and rewritten graphs."""

    is_packable = True
    runs_rewritten = True
    runs_imported = True
    mixes_dynamic = False
    runs_module = False
    measures_steps = False
    is_quick_to_prepare = False
    kind: Literal["cpu", "cuda"] = "cpu"
    overlapped_runs = 0

    def with_card(self, card: int) -> Self:
        """See `Engine`."""
        del card
        return self

    def with_module(self, module: Any) -> Self:
        """See `Engine`."""
        del module
        return self

    def with_large_bytes(self, large_bytes: int) -> Self:
        """See `Engine`."""
        del large_bytes
        return self


class HostExecutable:
    """Base class of executables that read inputs anywhere in host memory."""

    def buffer(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """See `Executable`; the memory is aligned to cache lines."""
        return aligned(dtype, shape)


class UnprofiledExecutable(HostExecutable):
    """Base class of executables that do not measure the time of each step."""

    def profile(self, inputs: Mapping[str, Array]) -> dict[str, float]:
        """See `Executable`."""
        del inputs
        return {}
