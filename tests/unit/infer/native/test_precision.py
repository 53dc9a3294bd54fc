"""Which values may be stored as bytes or bfloat16."""

from __future__ import annotations

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


def test_what_is_given_or_normalised_stays_as_it_is(sketch):
    x = sketch.input(2, 7, 24)
    norm = sketch("LayerNormalization", x, sketch.vector(24), sketch.vector(24), axis=-1)
    y = sketch.linear(norm, 16)
    assert storable(sketch.done(y)) == [norm]
    assert storable(sketch.done(y, norm)) == []
