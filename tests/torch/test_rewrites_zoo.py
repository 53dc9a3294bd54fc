"""What the rewrites make of the benchmark's networks, as PyTorch exports them."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

from slipstream.bench.zoo import ZOO
from slipstream.infer.graph.graph import Graph
from slipstream.infer.graph.onnx_file import read, to_model
from slipstream.infer.rewrites import Applied, expand, optimise

TOLERANCE = 1e-4  # of the outputs' standard deviation
NUM_LAYERS = 12  # of both transformers

# Nodes of ours, and of those that a network has none of any more.
EXPECTED = {
    "resnet50": {"Conv": 53, "Linear": 1},
    "resnet26d": {"Conv": 31, "Linear": 1},
    "vit_small": {
        **{"Attention": NUM_LAYERS, "Gelu": NUM_LAYERS, "LayerNormalization": 2 * NUM_LAYERS + 1},
        **{"Linear": 4 * NUM_LAYERS + 1, "Softmax": 0, "Erf": 0, "MatMul": 0, "Gemm": 0},
    },
    "mobilenetv3_large": {"SqueezeExcite": 8, "HardSwish": 21, "HardSigmoid": 0, "Linear": 2},
    "efficientnet_b0": {"SqueezeExcite": 16, "Silu": 33, "Sigmoid": 0, "Linear": 1},
    "bert_base": {
        **{"Attention": NUM_LAYERS, "Gelu": NUM_LAYERS, "LayerNormalization": 2 * NUM_LAYERS + 1},
        **{"Linear": 4 * NUM_LAYERS + 1, "Softmax": 0, "Erf": 0, "MatMul": 0, "Gemm": 0},
    },
    "detector": {"Conv": 68, "Silu": 65, "Sigmoid": 3},
    "stylegan": {"Conv": 17, "ConvTranspose": 10, "RmsNorm": 1, "ReduceSum": 0},
}
SHAPE_OPS = ("Cast", "Constant", "ConstantOfShape", "Expand", "Identity", "Shape", "Unsqueeze")


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimised:
    """A network's exported file and what the rewrites made of it."""

    name: str
    path: Path
    graph: Graph
    applied: Mapping[str, Applied]


# Both ends of the list, which always run, are networks that take seconds.
FIRST, LAST = "mobilenetv3_large", "resnet26d"
NETWORKS = [FIRST, *(name for name in ZOO if name not in (FIRST, LAST)), LAST]

pytestmark = [
    pytest.mark.sweep,
    pytest.mark.parametrize("optimised", NETWORKS, indirect=True, scope="module"),
]


@pytest.fixture(scope="module")
def optimised(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Optimised:
    """Return a network of the zoo before and after the rewrites."""
    path = tmp_path_factory.mktemp("zoo") / f"{request.param}.onnx"
    _export(request.param, path)
    graph = read(path)
    result, applied = optimise(graph)
    by_name = {item.name: item for item in applied}
    return Optimised(name=request.param, path=path, graph=result, applied=by_name)


def test_the_same_is_computed(optimised: Optimised) -> None:
    model = ZOO[optimised.name]
    inputs = dict(model.inputs(6))
    expected = _run(optimised.path, inputs)
    rewritten = optimised.path.with_name("rewritten.onnx")
    rewritten.write_bytes(to_model(expand(optimised.graph)).SerializeToString())
    for answer, original in zip(_run(rewritten, inputs), expected, strict=True):
        assert answer.shape == original.shape
        assert np.abs(answer - original).max() < TOLERANCE * original.std()
    optimised.path.unlink()
    rewritten.unlink()


def test_patterns_are_found(optimised: Optimised) -> None:
    counts = Counter(node.op for node in optimised.graph.nodes)
    expected = EXPECTED[optimised.name]
    assert {op: counts[op] for op in expected} == expected


def test_no_arithmetic_with_shapes_is_left(optimised: Optimised) -> None:
    counts = Counter(node.op for node in optimised.graph.nodes)
    # BERT makes its mask of integers.
    left = {"Cast": 1} if optimised.name == "bert_base" else {}
    assert {op: counts[op] for op in SHAPE_OPS if counts[op]} == left


def test_every_shape_is_known(optimised: Optimised) -> None:
    names = [output for node in optimised.graph.nodes for output in node.outputs]
    assert [name for name in names if optimised.graph.shape(name) is None] == []


def test_every_layer_has_constant_weights(optimised: Optimised) -> None:
    layers = [
        node for node in optimised.graph.nodes if node.op in ("Conv", "ConvTranspose", "Linear")
    ]
    assert all(layer.inputs[1] in optimised.graph.constants for layer in layers)


def test_report_adds_up(optimised: Optimised) -> None:
    saved = [item.nodes_before - item.nodes_after for item in optimised.applied.values()]
    first = next(iter(optimised.applied.values()))
    assert first.nodes_before - sum(saved) == len(optimised.graph.nodes)


def _export(name: str, path: Path) -> None:
    model = ZOO[name]
    inputs = model.inputs(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the exporter without dynamo
        torch.onnx.export(
            model.build(),
            tuple(torch.from_numpy(array) for array in inputs.values()),
            path,
            input_names=list(inputs),
            output_names=model.outputs,
            opset_version=17,
            dynamo=False,
        )


def _run(path: Path, inputs: Mapping[str, NDArray[np.generic]]) -> list[NDArray[np.float32]]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(path, options, providers=providers).run(None, dict(inputs))
