"""Small graphs in ONNX's text form, and what the rewrites make of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import ArrayLike, NDArray
from onnx import numpy_helper

from slipstream.infer.compiler import compile_model
from slipstream.infer.graph import Graph, Node
from slipstream.infer.onnx_file import from_model, to_model
from slipstream.infer.rewrites import expand, optimise

UNKNOWN_SIZE = 3  # of dimensions that have only a name
# What a number in a damaged file becomes.
NUMBERS = [
    *(b"0", b"-1", b"-3", b"7", b"1000", b"1000000", b"2147483648", b"1" * 30, b"1e300", b"nan"),
]
TOLERANCE = 1e-5  # of the largest element

Build = Callable[..., Graph]
Rewritten = Callable[..., "Outcome"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What the rewrites made of a graph.

    Args:
        graph: the result.
        matches: by name of rewrite, those that found any.
    """

    graph: Graph
    matches: Mapping[str, int]

    @property
    def ops(self) -> list[str]:
        """The operators, sorted."""
        return sorted(node.op for node in self.graph.nodes)

    def node(self, op: str) -> Node:
        """The only node of an operator."""
        (node,) = (node for node in self.graph.nodes if node.op == op)
        return node


@pytest.fixture
def random() -> np.random.Generator:
    """The same numbers each time."""
    return np.random.default_rng(5)


@pytest.fixture
def damaged(random: np.random.Generator) -> Callable[[bytes], bytes]:
    """Makes of a file one that is cut, has other numbers, or a few bytes changed."""

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


@pytest.fixture(scope="session")
def build() -> Build:
    """Makes a graph of ONNX's text form, "(float[2] x) => (float[2] y) { y = Relu(x) }"."""

    def make(text: str, *, opset: int = 17, **constants: ArrayLike) -> Graph:
        proto = onnx.parser.parse_graph("tested " + text)
        proto.initializer.extend(
            numpy_helper.from_array(_plain(value), name) for name, value in constants.items()
        )
        opsets = [onnx.helper.make_opsetid("", opset)]
        model = onnx.helper.make_model(proto, opset_imports=opsets, ir_version=10)
        onnx.checker.check_model(model)
        return from_model(model)

    return make


@pytest.fixture(scope="session")
def net(build: Build) -> Graph:
    """A small classifier: image float32 (1, 3, 8, 8) to logits (1, 5)."""
    random = np.random.default_rng(3)
    return build(
        """(float[1,3,8,8] image) => (float[1,5] logits) {
            a = Conv <kernel_shape=[3,3], pads=[1,1,1,1]> (image, w, b) s = Sigmoid(a)
            m = Mul(a, s) p = GlobalAveragePool(m) f = Flatten(p) logits = Gemm(f, v, c)
        }""",
        w=random.standard_normal((208, 3, 3, 3)) / 5,
        b=random.standard_normal(208),
        v=random.standard_normal((208, 5)) / 14,
        c=random.standard_normal(5),
    )


@pytest.fixture(scope="session")
def compiled(net: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of the small classifier, run by ONNX Runtime in float32. Not to be changed."""
    path = tmp_path_factory.mktemp("compiled") / "model.slip"
    model = to_model(net).SerializeToString()
    compile_model(model, path, seconds=1, threads=1, engines=("onnxruntime",))
    return path


@pytest.fixture
def rewritten() -> Rewritten:
    """Rewrites a graph, and fails unless the result computes the same."""

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


def _plain(value: ArrayLike) -> NDArray[np.generic]:
    """As ONNX has it: float32 for Python's floats, int64 for its integers."""
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype == np.float64 else array


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
