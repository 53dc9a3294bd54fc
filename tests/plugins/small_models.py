"""Fixtures of small models: a graph of ONNX's text form, a classifier, and its package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import ArrayLike, NDArray
from onnx import numpy_helper

from slipstream.infer.compiler import compile_model
from slipstream.infer.graph.graph import Graph
from slipstream.infer.graph.onnx_file import from_model, to_model
from slipstream.infer.options import CompileOptions

Build = Callable[..., Graph]


@pytest.fixture
def random() -> np.random.Generator:
    """Return a generator with a fixed seed."""
    return np.random.default_rng(5)


@pytest.fixture(scope="session")
def build() -> Build:
    """Return a function that makes a graph of ONNX's text, "(float[2] x) => (float[2] y) {...}"."""

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
    """Return a small classifier: image float32 (1, 3, 8, 8) to logits (1, 5)."""
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
    """Return a package of the small classifier for ONNX Runtime in float32; never changed."""
    path = tmp_path_factory.mktemp("compiled") / "model.slip"
    model = to_model(net).SerializeToString()
    compile_model(model, path, CompileOptions(seconds=1, threads=1, engines=("onnxruntime",)))
    return path


def _plain(value: ArrayLike) -> NDArray[np.generic]:
    """Return a number as ONNX has it: float32 for Python's floats, int64 for its integers."""
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype == np.float64 else array
