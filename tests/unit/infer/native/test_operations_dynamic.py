"""Products of matrices by bytes whose ranges every call finds, row by row."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.infer.native.formats import SMALLEST_MATRIX
from slipstream.infer.native.lower import plan
from slipstream.infer.native.operations import OPERATIONS

KIND = "dynamic"


def made(graph):
    """Return the values from which bytes are computed."""
    needs = plan(graph, {}, OPERATIONS, is_dynamic=True).needs
    return {name.removesuffix(":numbers") for name in needs if name.endswith(":numbers")}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("into", [16, 48, 100])
@pytest.mark.parametrize("shape", [(1, 65), (3, 64), (2, 7, 72), (1, 128, 64), (20, 256)])
def test_linear(check, sketch, shape, into, bias):
    x = sketch.input(*shape)
    graph = sketch.done(sketch.linear(x, into, bias=bias))
    assert made(graph) == {x}
    check(graph, KIND)


@pytest.mark.parametrize("transposed", [False, True])
def test_gemm(check, sketch, transposed):
    x = sketch.input(3, 64)
    weights = sketch.weights(*((20, 64) if transposed else (64, 20)))
    graph = sketch.done(sketch("Gemm", x, weights, sketch.vector(20), transB=int(transposed)))
    assert made(graph) == {x}
    check(graph, KIND)


@pytest.mark.parametrize("activation", ["Relu", "Gelu", "Silu", "Tanh"])
def test_products_one_after_another(check, sketch, activation):
    x = sketch.input(2, 9, 64)
    hidden = sketch(activation, sketch.linear(x, 96))
    graph = sketch.done(sketch("Add", sketch.linear(hidden, 64), x))
    assert made(graph) == {x, hidden}
    check(graph, KIND, room=4)


@pytest.mark.parametrize("activation", ["Gelu", "Silu"])
def test_what_is_an_output_too_is_exact(check, sketch, activation):
    x = sketch.input(2, 9, 8)
    hidden = sketch(activation, sketch.linear(x, 48))  # 384 weights: too few for bytes
    graph = sketch.done(sketch.linear(hidden, 64), hidden)
    assert made(graph) == {hidden}
    check(graph, KIND)
    graph.outputs = [hidden]
    check(graph, "float32")


def test_bytes_of_a_value_are_made_once(check, sketch):
    x = sketch.input(2, 7, 64)
    y = sketch("LayerNormalization", x, sketch.vector(64), sketch.vector(64), axis=2)
    graph = sketch.done(sketch.linear(y, 32), sketch.linear(y, 48), sketch.linear(y, 20))
    assert made(graph) == {y}
    check(graph, KIND)


def test_small_matrices_stay_in_float32(check, sketch):
    x = sketch.input(5, SMALLEST_MATRIX // 32 - 1)
    graph = sketch.done(sketch.linear(x, 32))
    assert not made(graph)
    check(graph, "float32")


def test_attention(check, sketch):
    x = sketch.input(2, 19, 40)
    q, k, v = (sketch.linear(x, 64) for _ in range(3))
    y = sketch("Attention", q, k, v, heads=2, scale=32**-0.5)
    graph = sketch.done(sketch.linear(y, 40))
    assert made(graph) == {x, y}
    check(graph, KIND, room=4)


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros(64),
        np.full(64, 3.0),
        np.full(64, -3.0),
        np.linspace(1, 2, 64),
        np.linspace(-2, -1, 64),
        np.linspace(-1e-30, 1e-30, 64),
        np.linspace(-1e10, 1e10, 64),
        np.where(np.arange(64) == 5, 100.0, 0.0),
    ],
    ids=["zeros", "equal", "negative", "above", "below", "tiny", "great", "one"],
)
def test_rows_of_any_range_beside_common_ones(check, sketch, rows):
    x = sketch.input(3, 64)
    graph = sketch.done(sketch.linear(x, 32, bias=False))
    feeds = {x: sketch.random.standard_normal((3, 64)).astype(np.float32)}
    feeds[x][1] = rows
    check(graph, KIND, feeds=feeds)
    alone = {x: np.tile(np.float32(rows), (3, 1))}
    if np.abs(rows).max() > 1e-20:  # smaller ones count for nothing
        check(graph, KIND, feeds=alone)
