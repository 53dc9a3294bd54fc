"""The engines that can run a graph, behind one protocol."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Literal

from slipstream.errors import UsageError
from slipstream.infer.engines.gpu.inductor import GraphInductor
from slipstream.infer.engines.gpu.onnxruntime import CUDA, TENSORRT
from slipstream.infer.engines.inductor import Inductor
from slipstream.infer.engines.native import Native
from slipstream.infer.engines.onnxruntime import OnnxRuntime
from slipstream.infer.engines.openvino import OpenVino
from slipstream.infer.engines.protocol import FLOATS as FLOATS
from slipstream.infer.engines.protocol import PRECISIONS as PRECISIONS
from slipstream.infer.engines.protocol import Engine as Engine
from slipstream.infer.engines.protocol import Executable as Executable
from slipstream.infer.engines.protocol import Precision as Precision
from slipstream.infer.engines.protocol import Recipe as Recipe
from slipstream.infer.engines.split import Split
from slipstream.infer.machine import LARGE_BYTES

ENGINES: MappingProxyType[str, Engine] = MappingProxyType(
    {
        engine.name: engine
        for engine in (
            *(OnnxRuntime(), OpenVino(), Native(), Inductor()),
            *(GraphInductor(), CUDA, TENSORRT),
        )
    }
)


def engine_of(name: str, large_bytes: int = LARGE_BYTES, card: int | None = None) -> Engine:
    """Return the engine with a given name.

    Args:
        name: Name in `ENGINES`, or "split" for the engine that runs each part of a graph on an
            engine of its own.
        large_bytes: Threshold in bytes for the total size of a graph's constants (default 1 GiB).
            If a graph's constants have at least `large_bytes` together, the engine does not copy
            them.
        card: Number of the GPU, for an engine that uses one (default: the first GPU).

    Raises:
        UsageError: no engine has this name.
    """
    if name == Split.name:
        return Split(lambda part: engine_of(part, card=card))
    if name not in ENGINES:
        raise UsageError(f"no engine is called {name!r}; choose one of {', '.join(ENGINES)}")
    engine = ENGINES[name].with_large_bytes(large_bytes)
    return engine if card is None else engine.with_card(card)


def engines_of(recipe: Recipe) -> Iterator[Engine]:
    """Yield the engines that compute a recipe: its own, or those of its parts."""
    if not recipe.parts:
        yield engine_of(recipe.engine)
    for part in recipe.parts:
        yield from engines_of(part.recipe)


def kind_of(recipe: Recipe) -> Literal["cpu", "cuda"]:
    """Return the kind of device that a recipe needs: "cuda" if any part runs on a GPU."""
    return "cuda" if any(engine.kind == "cuda" for engine in engines_of(recipe)) else "cpu"


def overlapped_runs_of(recipe: Recipe) -> int:
    """Return `Engine.overlapped_runs` of a recipe: 0 if any part runs on the cores."""
    return min(engine.overlapped_runs for engine in engines_of(recipe))
