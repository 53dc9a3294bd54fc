"""Operators of graphs compute with PyTorch what ONNX Runtime computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from slipstream.errors import UnsupportedError
from slipstream.infer.engines.gpu.operators import OPERATORS
from slipstream.infer.engines.gpu.torch_graph import torch_module
from slipstream.infer.engines.onnxruntime import plain_session
from slipstream.infer.engines.protocol import Recipe
from slipstream.infer.engines.standard import onnx_bytes

MAPS = "(float[2,4,6,6] x) => (float[{shape}] y) {{ {body} }}"
UNARY = (
    *("Abs", "Ceil", "Celu", "Cos", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish"),
    *("Identity", "LeakyRelu", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid"),
    *("Sign", "Sin", "Softplus", "Softsign", "Tanh"),
)
BINARY = ("Add", "Div", "Max", "Mean", "Min", "Mod <fmod=1>", "Mul", "Sub", "Sum", "PRelu")
BODIES = [
    *[("2,4,6,6", f"y = {op}(x)") for op in UNARY],
    *[("2,4,6,6", f"y = {op}(x, c)") for op in BINARY],
    *[("2,4,6,6", f"p = Abs(x) y = {op}(p)") for op in ("Sqrt", "Log")],
    ("2,4,6,6", "p = Abs(x) y = Pow(p, c)"),
    ("2,4,6,6", "y = Clip(x, low, high)"),
    ("2,4,6,6", "p = Greater(x, c) q = Less(x, low) r = Or(p, q) y = Where(r, x, c)"),
    ("2,4,6,6", "p = GreaterOrEqual(x, c) q = Not(p) r = Xor(p, q) y = Cast<to=1>(r)"),
    ("2,4,6,6", "p = LessOrEqual(x, c) q = Equal(x, c) r = And(p, q) y = Cast<to=1>(r)"),
    ("2,8,4,4", "y = Conv <pads=[0,1,1,0], kernel_shape=[4,4]> (x, k4)"),
    ("2,8,3,3", 'y = Conv <auto_pad="SAME_UPPER", strides=[2,2]> (x, k4)'),
    ("2,8,12,12", "y = ConvTranspose <strides=[2,2], pads=[1,1,1,1]> (x, t4)"),
    ("2,4,3,3", "y = MaxPool <kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]> (x)"),
    ("2,4,3,3", 'y = MaxPool <kernel_shape=[3,3], strides=[2,2], auto_pad="SAME_UPPER"> (x)'),
    ("2,4,6,6", "y = AveragePool <kernel_shape=[3,3], pads=[1,1,1,1]> (x)"),
    ("2,4,1,1", "y = GlobalAveragePool(x)"),
    ("2,4,1,1", "y = GlobalMaxPool(x)"),
    ("2,4,6,6", "y = BatchNormalization(x, four, half, half, four)"),
    ("2,4,6,6", "y = InstanceNormalization(x, four, half)"),
    ("2,4,6,6", "y = LayerNormalization(x, six, six)"),
    ("2,4,6,6", "y = LRN <size=3> (x)"),
    *[
        ("2,4,1,6", f"y = {op} <axes=[2]> (x)")
        for op in ("ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean")
    ],
    *[("2,4,6", f"y = {op} <axes=[-1], keepdims=0> (x)") for op in ("ReduceMin", "ReduceProd")],
    *[("2,4,6,6", f"y = {op} <axis=1> (x)") for op in ("Softmax", "LogSoftmax")],
    ("1,1,1,1", "y = ReduceSumSquare(x)"),
    ("2,4,6,6", "y = CumSum(x, one)"),
    ("2,4,6,2", "y, at = TopK(x, two)"),
    ("2,144", "y = Flatten(x)"),
    ("6,6,4,2", "y = Transpose(x)"),
    ("2,8,6,6", "y = Concat <axis=1> (x, x)"),
    ("2,2,6,6", "y, z = Split <axis=1> (x)"),
    ("2,4,3,6", "y = Slice(x, first, last, two, two)"),
    ("2,4,6,6", "y = Slice(x, last, far, two, minus)"),
    ("2,3,6,6", "y = Gather <axis=1> (x, places)"),
    ("2,6,6", "y = Gather <axis=1> (x, three)"),
    ("4,8,6,6", "y = Tile(x, repeats)"),
    ("2,4,8,9", "y = Pad(x, pads, low)"),
    ("2,4,8,9", 'y = Pad <mode="reflect"> (x, pads)'),
    ("2,4,12,12", 'y = Resize <mode="nearest"> (x, none, scales)'),
    ("2,4,12,12", 'y = Resize <mode="linear"> (x, none, scales)'),
    ("2,1,12,12", "y = DepthToSpace <blocksize=2> (x)"),
    ("2,1,12,12", 'y = DepthToSpace <blocksize=2, mode="CRD"> (x)'),
    ("2,16,3,3", "y = SpaceToDepth <blocksize=2> (x)"),
    ("2,4,6,6", "y = Trilu <upper=0> (x)"),
    ("2,4,6,5", "y = MatMul(x, matrix)"),
    ("2,4,6,5", 'y = Einsum <equation="abij,jk->abik"> (x, matrix)'),
    ("2,5", "f = Flatten(x) y = Gemm <alpha=0.5, beta=2.0> (f, wide, five)"),
]


@pytest.fixture(scope="module")
def constants():
    random = np.random.default_rng(3)
    return {
        "c": random.standard_normal((4, 1, 6)),
        "k4": random.standard_normal((8, 4, 4, 4)),
        "t4": random.standard_normal((4, 8, 4, 4)),
        "matrix": random.standard_normal((6, 5)),
        "wide": random.standard_normal((144, 5)),
        "five": random.standard_normal(5),
        "six": random.standard_normal(6),
        "four": np.abs(random.standard_normal(4)),
        "half": random.standard_normal(4),
        "low": np.float32(-0.5),
        "high": np.float32(0.5),
        "scales": np.float32([1, 1, 2, 2]),
        "none": np.float32([]),
        "one": np.int64(1),
        "two": np.int64([2]),
        "three": np.int64(3),
        "first": np.int64([0]),
        "last": np.int64([6]),
        "far": np.int64([-7]),
        "minus": np.int64([-1]),
        "places": np.int64([0, -1, 2]),
        "repeats": np.int64([2, 2, 1, 1]),
        "pads": np.int64([0, 0, 1, 2, 0, 0, 1, 1]),
    }


def graph_of(build, shape, body, constants):
    words = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())
    used = {name: array for name, array in constants.items() if name in words}
    return build(MAPS.format(shape=shape, body=body), **used)


@pytest.mark.parametrize(("shape", "body"), BODIES, ids=[body for _, body in BODIES])
def test_results_are_those_of_onnx_runtime(build, constants, shape, body):
    graph = graph_of(build, shape, body, constants)
    x = np.random.default_rng(4).standard_normal((2, 4, 6, 6)).astype(np.float32)
    right = plain_session(onnx_bytes(graph, Recipe(engine="onnxruntime")), 1).run({"x": x})
    (y,) = torch_module(graph, torch.float32)(torch.from_numpy(x))
    assert y.is_contiguous()
    np.testing.assert_allclose(y.numpy(), right["y"], rtol=1e-4, atol=1e-5)


def test_numbers_of_16_bits_stay_inside(build, constants):
    graph = graph_of(build, "2,4,6,5", "a = MatMul(x, matrix) y = Cast<to=1>(a)", constants)
    x = torch.randn(2, 4, 6, 6)
    (y,) = torch_module(graph, torch.bfloat16)(x)
    right = x.numpy() @ graph.constants["matrix"]
    assert y.dtype == torch.float32
    assert 0 < np.abs(y.numpy() - right).max() < 0.1


@pytest.mark.parametrize("number", [torch.bfloat16, torch.float16])
def test_masks_of_attention_stay_finite_in_16_bits(build, number):
    """The product of a mask and the least float32 was NaN where nothing is masked."""
    least = np.float32([np.finfo(np.float32).min, -np.inf])
    graph = build("(float[2] x) => (float[2] y) { y = Mul(x, least) }", least=least)
    (y,) = torch_module(graph, number)(torch.tensor([0.0, 1.0]))
    assert y.tolist() == [0.0, -np.inf]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("a = Shrink(x) y = Hardmax(a)", "no Hardmax, Shrink here"),
        ("s = Shape(x) y = Reshape(x, s)", "no Shape here"),
        ("y = CumSum <reverse=1> (x, one)", "CumSum .y. .*reversed"),
        ("i = Cast <to=7> (x) y = Tile(x, i)", "constant as its input 1"),
    ],
)
def test_a_node_that_is_not_computed_is_named(build, constants, body, words):
    graph = graph_of(build, "2,4,6,6", body, constants)
    with pytest.raises(UnsupportedError, match=words):
        torch_module(graph, torch.float32)


def test_every_operator_that_our_rewrites_make_is_computed():
    ours = ("Attention", "Gelu", "InverseRoot", "Linear", "RmsNorm", "Silu")
    assert {f"slipstream.{name}" for name in ours} <= OPERATORS.keys()


@pytest.mark.parametrize("rounding", ["floor", "ceil"])
def test_nearest_pixels_that_pytorch_rounds_in_another_way_are_refused(build, rounding):
    mode = f'mode="nearest", coordinate_transformation_mode="half_pixel", nearest_mode="{rounding}"'
    body = f"y = Resize <{mode}> (x, none, scales)"
    scales = np.float32([1, 1, 2, 2])
    text = MAPS.format(shape="2,4,12,12", body=body)
    graph = build(text, none=np.float32([]), scales=scales)
    with pytest.raises(UnsupportedError, match=r"Resize .* the mode nearest with half_pixel"):
        torch_module(graph, torch.float32)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool <count_include_pad=1>"])
def test_windows_that_may_begin_in_one_sided_padding_are_refused(build, op):
    name, _, rest = op.partition(" <")
    attributes = "kernel_shape=[2,2], strides=[2,2], pads=[0,0,1,1], ceil_mode=1"
    attributes += f", {rest[:-1]}" if rest else ""
    graph = build(MAPS.format(shape="2,4,3,3", body=f"y = {name} <{attributes}> (x)"))
    with pytest.raises(UnsupportedError, match=f"{name} .* sizes are rounded up"):
        torch_module(graph, torch.float32)


def test_a_product_of_integers_keeps_their_dtype(build):
    graph = build("(int32[3,4] x) => (int32[1,1] y) { y = ReduceProd(x) }")
    x = torch.full((3, 4), 2, dtype=torch.int32)
    (y,) = torch_module(graph, torch.float32)(x)
    assert (y.dtype, y.tolist()) == (torch.int32, [[4096]])


REDUCTIONS = tuple(sorted(op for op in OPERATORS if op.startswith("Reduce")))


@pytest.mark.parametrize("op", [*REDUCTIONS, "CumSum"])
@pytest.mark.parametrize(
    "dtype", [np.int32, np.int64, np.int8, np.uint8], ids=lambda kind: kind.__name__
)
def test_reductions_of_integers_have_integers_as_in_onnx_runtime(build, random, op, dtype):
    """ONNX Runtime has few kernels for integers of 8 bits; their results are those of int32."""
    name = np.dtype(dtype).name
    body = f"y = {op}(x, axis)" if op in ("CumSum", "ReduceSum") else f"y = {op} <axes=[1]> (x)"
    shape = "2,3,4" if op == "CumSum" else "2,1,4"
    constants = {"axis": np.array(1 if op == "CumSum" else [1])} if "axis)" in body else {}
    x = random.integers(1, 4, (2, 3, 4)).astype(dtype)
    graph = build(f"({name}[2,3,4] x) => ({name}[{shape}] y) {{ {body} }}", **constants)
    (result,) = torch_module(graph, torch.float32)(torch.from_numpy(x))

    wide = "int64" if name == "int64" else "int32"
    standard = build(f"({wide}[2,3,4] x) => ({wide}[{shape}] y) {{ {body} }}", **constants)
    session = plain_session(onnx_bytes(standard, Recipe(engine="onnxruntime", rewrites=False)), 1)
    expected = session.run({"x": x.astype(wide)})["y"]
    assert result.numpy().dtype == dtype
    np.testing.assert_array_equal(result.numpy(), expected)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions_of_one_number_are_computed(build, op):
    graph = build(f"(float x) => (float y) {{ y = {op}(x) }}")
    x = np.array(-3.0, np.float32)
    (result,) = torch_module(graph, torch.float32)(torch.from_numpy(x))
    session = plain_session(onnx_bytes(graph, Recipe(engine="onnxruntime", rewrites=False)), 1)
    np.testing.assert_allclose(result.numpy(), session.run({"x": x})["y"])
