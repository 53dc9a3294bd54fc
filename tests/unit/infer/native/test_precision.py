"""Which values may be stored as bytes or bfloat16."""

from __future__ import annotations

import pytest

from slipstream.infer.native.precision import attended, storable


def test_nothing_is_stored_as_less_where_no_product_reads_it(sketch):
    """So other tests try operations that are before no product in float32 only."""
    x, other = sketch.input(2, 24, 5, 7), sketch.input(2, 24, 5, 7)
    y = sketch("Add", sketch("Tanh", x), other)
    y = sketch("Mul", y, sketch("Sigmoid", sketch("GlobalAveragePool", y)))
    y = sketch("MaxPool", sketch("Relu", y), kernel_shape=[2, 2])
    tokens = sketch("Reshape", y, sketch.constant([2, 24, 24]))
    norm = sketch("LayerNormalization", tokens, sketch.vector(24), sketch.vector(24), axis=-1)
    turned = sketch("Transpose", sketch("Softmax", norm, axis=-1), perm=[0, 2, 1])
    graph = sketch.done(sketch("Mul", turned, sketch.vector(24)))
    assert storable(graph) == attended(graph) == []


def test_what_a_product_reads_may_be_stored_through_what_moves_it(sketch):
    x = sketch.input(2, 24, 4, 4)
    pooled = sketch("MaxPool", x, kernel_shape=[2, 2])
    assert storable(sketch.done(sketch.conv(pooled, 8))) == [x, pooled]


@pytest.mark.parametrize(
    ("shape", "is_gate"), [((2, 24, 1, 1), True), ((2, 24, 1, 4), False), ((2, 24, 4, 4), False)]
)
def test_a_factor_of_each_channel_stays_as_it_is(sketch, shape, is_gate):
    x, factor = sketch.input(2, 24, 4, 4), sketch.input(*shape)
    graph = sketch.done(sketch.conv(sketch("Mul", x, factor), 8))
    assert (factor in storable(graph)) is not is_gate


def test_factors_of_vectors_stay_as_they_are(sketch):
    one, other = sketch.input(2, 24), sketch.input(2, 24)
    product = sketch("Mul", one, other)
    assert storable(sketch.done(sketch.linear(product, 8))) == [product]


def test_what_is_given_or_normalised_stays_as_it_is(sketch):
    x = sketch.input(2, 7, 24)
    norm = sketch("LayerNormalization", x, sketch.vector(24), sketch.vector(24), axis=-1)
    y = sketch.linear(norm, 16)
    assert storable(sketch.done(y)) == [norm]
    assert storable(sketch.done(y, norm)) == []
