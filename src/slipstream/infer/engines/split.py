"""Run the parts of a graph on several engines, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from slipstream.errors import UnsupportedError
from slipstream.infer.engines.protocol import (
    Engine,
    Executable,
    GraphEngine,
    Precision,
    Recipe,
    Small,
    UnprofiledExecutable,
)
from slipstream.infer.graph.graph import Array, Graph
from slipstream.infer.graph.parts import pieces


class Split(GraphEngine):
    """Engine that runs each part of a graph on the engine that the recipe names for the part."""

    name = "split"

    def __init__(self, engine_of: Callable[[str], Engine]) -> None:
        self._engine_of = engine_of

    def available(self) -> str | None:
        """Return None; the engines of the parts are checked when a recipe is prepared."""
        return None

    def precisions(self) -> tuple[Precision, ...]:
        """Return no precision: only the parts of a recipe have a precision."""
        return ()

    def prepare(self, graph: Graph, recipe: Recipe, threads: int) -> Executable:
        """See `Engine`."""
        executables: list[Executable] = []
        graphs = pieces(graph, [part.end for part in recipe.parts[:-1]])
        try:
            for piece, part in zip(graphs, recipe.parts, strict=True):
                executables.append(self._ready(piece, part.recipe, threads))
        except UnsupportedError:
            for executable in executables:
                executable.close()
            raise
        return _Chain(executables, graph.outputs)

    def _ready(self, graph: Graph, recipe: Recipe, threads: int) -> Executable:
        engine = self._engine_of(recipe.engine)
        reason = engine.available()
        if reason is not None:
            raise UnsupportedError(f"a part needs the engine {engine.name}: {reason}")
        return engine.prepare(graph, recipe, threads)


class _Chain(UnprofiledExecutable):
    """The prepared parts of a graph, which run one after the other.

    A part reads inputs of the graph and outputs of earlier parts.
    """

    def __init__(self, parts: Sequence[Executable], outputs: Sequence[str]) -> None:
        self._parts, self._outputs = parts, outputs

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        values = dict(inputs)
        for part in self._parts:
            values.update(part.run(values))
        return {name: values[name] for name in self._outputs}

    @property
    def small(self) -> dict[str, Small]:
        """See `Executable`."""
        small: dict[str, Small] = {}
        for part in self._parts:
            small.update(part.small)
        return small

    def close(self) -> None:
        for part in self._parts:
            part.close()
