"""What an engine is: it takes a graph and a recipe, and makes something that can be run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from slipstream.infer.graph.graph import Array, Graph

Precision = Literal["fp32", "bf16", "fp16", "int8", "int8-dynamic", "int8-weights"]
FLOATS: tuple[Precision, ...] = ("fp32", "bf16", "fp16")
PRECISIONS: tuple[Precision, ...] = (*FLOATS, "int8", "int8-dynamic", "int8-weights")


class Recipe(BaseModel):
    """How a graph is to be run: all that an engine has to know beside it. Plain JSON.

    Args:
        engine: one of `ENGINES`.
        precision: of products; int8 is of activations and weights, int8-dynamic the same for
            products of matrices, with ranges of activations that every call finds for itself;
            int8-weights is of weights only.
        rewrites: the graph went through our rewrites; False: it is as it was imported.
        streams: calls that run at a time, each on its share of the threads; 1 gives the least
            latency.
        ranges: for int8, the least and greatest real number that the bytes of a value stand for.
        shifts: for int8 and int8-dynamic, what is added to the biases of products that read bytes,
            by their outputs: rounded weights would shift their results by as much.
        rest: for int8, the precision of products of values that have no range; int8-dynamic is
            that of matrices only.
        parts: of the engine "split": how each part of the graph is run, in their order.
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
        end: the value with which it ends, through which all goes; "" for the last part.
        recipe: how it is run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    end: str
    recipe: Recipe


class Executable(Protocol):
    """A graph made ready by an engine."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Every output by its name, in arrays that belong to the caller.

        `inputs` has every input of the graph in its dtype and shape, C-contiguous: nothing is
        checked. Any number of threads may call at a time: each call takes what it needs to run for
        itself from a pool (workers, requests), so none waits for another. Blocks; lets other
        threads of Python run.
        """
        ...

    def close(self) -> None:
        """Give threads and memory back; no call may be under way. Closing twice does nothing."""
        ...


@runtime_checkable
class Profiled(Protocol):
    """An executable that knows where its time goes."""

    def profile(self, inputs: Mapping[str, Array]) -> dict[str, float]:
        """Seconds of each step of one run, by the value that it computes. Blocks as `run` does."""
        ...


class Small(BaseModel):
    """What an engine makes of a float32 constant before it computes with it.

    Args:
        dtype: int8: by a scale per channel, to the greatest of each.
        axis: of those channels.
        of_bytes: whether int8 numbers multiply bytes; see `Weights.quantise`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dtype: Literal["int8", "bfloat16", "float16"]
    axis: int = 0
    of_bytes: bool = True


@runtime_checkable
class Rounding(Protocol):
    """An executable that reads constants with less precision than they have."""

    @property
    def small(self) -> Mapping[str, Small]:
        """By the constants' names; those whose other readers need them whole may be among them."""
        ...


class Engine(Protocol):
    """Something that runs graphs."""

    @property
    def name(self) -> str:
        """In recipes and on the command line."""
        ...

    @property
    def is_packable(self) -> bool:
        """Whether a package can store a model for this engine; if not, it is only measured."""
        ...

    @property
    def runs_rewritten(self) -> bool:
        """Whether the engine accepts graphs that went through our rewrites."""
        ...

    @property
    def runs_imported(self) -> bool:
        """Whether the engine accepts graphs as they were imported."""
        ...

    @property
    def mixes_dynamic(self) -> bool:
        """Whether products without ranges may be int8-dynamic beside products in int8."""
        ...

    @property
    def is_quick_to_prepare(self) -> bool:
        """Whether the engine prepares a graph faster than others, so that calibration uses it."""
        ...

    def with_module(self, module: Any) -> Engine:
        """Return an engine for the PyTorch module of a model; itself if it runs graphs only."""
        ...

    def available(self) -> str | None:
        """None where it can be used here, else why not and what to do."""
        ...

    def precisions(self) -> tuple[Precision, ...]:
        """Those for which this machine has instructions. Only of an available engine."""
        ...

    def prepare(self, graph: Graph, recipe: Recipe, threads: int) -> Executable:
        """Make a graph ready to run.

        Args:
            graph: all shapes fixed; rewritten if and only if the recipe says so.
            recipe: for this engine.
            threads: of all streams together, 1 or more.

        Raises UnsupportedError for what the engine cannot do with this graph: another engine or
        precision can.
        """
        ...
