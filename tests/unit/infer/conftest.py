"""Small graphs in ONNX's text form, and what the rewrites make of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from small_models import build as build
from small_models import compiled as compiled
from small_models import net as net
from small_models import random as random

from slipstream.infer.graph.graph import Graph, Node
from slipstream.infer.graph.onnx_file import to_model
from slipstream.infer.rewrites import expand, optimise

UNKNOWN_SIZE = 3  # of dimensions that have only a name
# What a number in a damaged file becomes.
NUMBERS = [
    *(b"0", b"-1", b"-3", b"7", b"1000", b"1000000", b"2147483648", b"1" * 30, b"1e300", b"nan"),
]
TOLERANCE = 1e-5  # of the largest element

Rewritten = Callable[..., "Outcome"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The result of the rewrites of a graph.

    Args:
        graph: Graph after the rewrites.
        matches: Number of matches of each rewrite that has any, by name.
    """

    graph: Graph
    matches: Mapping[str, int]

    @property
    def ops(self) -> list[str]:
        """Operators of the graph, sorted."""
        return sorted(node.op for node in self.graph.nodes)

    def node(self, op: str) -> Node:
        """Return the only node of an operator."""
        (node,) = (node for node in self.graph.nodes if node.op == op)
        return node


@pytest.fixture
def damaged(random: np.random.Generator) -> Callable[[bytes], bytes]:
    """Make of a file one that is cut, has other numbers, or a few bytes changed."""

    def damage(data: bytes) -> bytes:
        way = random.random()
        if way < 0.25:
            return data[: random.integers(len(data))]
        if way < 0.6:
            found = list(re.finditer(rb"\d+(\.\d+)?", data))
            number = found[random.integers(len(found))]
            return data[: number.start()] + random.choice(NUMBERS) + data[number.end() :]
        changed = bytearray(data)
        for place in random.integers(len(data), size=random.integers(1, 5)):
            changed[place] = random.integers(256)
        return bytes(changed)

    return damage


@pytest.fixture
def rewritten() -> Rewritten:
    """Return a function that rewrites a graph, and fails unless the result computes the same."""

    def rewrite(graph: Graph, *, without: Collection[str] = ()) -> Outcome:
        result, applied = optimise(graph, without=without)
        assert (list(result.inputs), result.outputs) == (list(graph.inputs), graph.outputs)
        feeds = _feeds(graph)
        pairs = zip(_run(expand(result), feeds), _run(graph, feeds), strict=True)
        for answer, expected in pairs:
            assert answer.dtype == expected.dtype
            assert answer.shape == expected.shape
            room = TOLERANCE * np.abs(expected).max(initial=1e-3)
            np.testing.assert_allclose(answer, expected, rtol=0, atol=room)
        return Outcome(
            graph=result, matches={item.name: item.matches for item in applied if item.matches}
        )

    return rewrite


def _feeds(graph: Graph) -> dict[str, NDArray[np.generic]]:
    random = np.random.default_rng(7)
    feeds: dict[str, NDArray[np.generic]] = {}
    for name, value in graph.inputs.items():
        shape = [size if isinstance(size, int) else UNKNOWN_SIZE for size in value.shape or ()]
        assert value.dtype is not None
        feeds[name] = np.asarray(3 * random.standard_normal(shape), value.dtype)
    return feeds


def _run(graph: Graph, feeds: Mapping[str, NDArray[np.generic]]) -> list[NDArray[np.generic]]:
    model = to_model(graph)
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    return session.run(None, dict(feeds))
