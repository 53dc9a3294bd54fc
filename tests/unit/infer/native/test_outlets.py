"""What leaves our kernels for other operators, and what is joined without being moved."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.infer.native.lower import lower
from slipstream.infer.native.operations import OPERATIONS
from slipstream.infer.native.outlets import channels_last
from slipstream.infer.native.precision import joined


def copies(graph, formats=None):
    return lower(graph, formats or {}, OPERATIONS).program.names.count("copy")


def head(sketch, *, perm=(0, 1, 3, 4, 2), parts=(3, 7), activation="Sigmoid"):
    """Return the head of a detector, which cuts channels in two and moves one part to the end."""
    x = sketch.conv(sketch.input(2, 16, 4, 5), parts[0] * parts[1])
    x = sketch(activation, x) if activation else x
    shape = sketch.constant(np.array([2, *parts, 4, 5]))
    return sketch("Transpose", sketch("Reshape", x, shape), perm=list(perm))


@pytest.mark.parametrize("activation", ["Sigmoid", ""])
def test_heads_leave_with_channels_last(computes, sketch, kind, activation):
    graph = channels_last(sketch.done(head(sketch, activation=activation)))
    ops = [node.op for node in graph.nodes]
    assert ops[-3:] == ["Transpose", "Reshape", "Transpose"]
    assert graph.nodes[-3].attributes["perm"] == [0, 2, 3, 1]
    computes(graph, kind=kind)


@pytest.mark.parametrize("perm", [(0, 1, 2, 4, 3), (0, 2, 3, 4, 1)])
def test_other_orders_stay(computes, sketch, perm):
    graph = sketch.done(head(sketch, perm=perm))
    assert channels_last(graph).nodes[-2].op == "Reshape"
    computes(channels_last(graph))


def test_heads_of_nothing_of_ours_stay(sketch):
    x = sketch.input(2, 21, 4, 5)
    cut = sketch("Reshape", x, sketch.constant(np.array([2, 3, 7, 4, 5])))
    graph = sketch.done(sketch("Transpose", cut, perm=[0, 1, 3, 4, 2]))
    assert [node.op for node in channels_last(graph).nodes] == ["Reshape", "Transpose"]


def test_the_graph_stays_as_it_was(sketch):
    graph = sketch.done(head(sketch))
    before = [(node.op, list(node.inputs), dict(node.attributes)) for node in graph.nodes]
    channels_last(graph)
    assert [(node.op, list(node.inputs), dict(node.attributes)) for node in graph.nodes] == before


def test_a_transposed_output_is_copied_once(check, sketch, kind):
    y = sketch("Transpose", sketch.conv(sketch.input(1, 3, 6, 5), 16), perm=[0, 2, 3, 1])
    assert copies(sketch.done(y)) == 2  # the input and the output
    check(sketch.done(y), kind)


def test_a_transposed_output_that_is_read_too(check, sketch, kind):
    y = sketch("Transpose", sketch.conv(sketch.input(1, 3, 6, 5), 16), perm=[0, 1, 3, 2])
    check(sketch.done(y, sketch("Relu", y)), kind)


# ---- joining -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("channels", "moved"), [((16, 32, 16), 0), ((16, 5), 0), ((5, 16), 2)])
def test_parts_are_written_where_they_belong(check, sketch, kind, channels, moved):
    """Parts are copied only if they would not begin with a whole vector."""
    x = sketch.input(2, 8, 5, 4)
    y = sketch("Concat", *(sketch.conv(x, count) for count in channels), axis=1)
    z = sketch("Relu", sketch.conv(y, 8))
    assert copies(sketch.done(z)) == 2 + moved
    check(sketch.done(z), kind)


def test_parts_that_others_read_with_a_border(check, sketch, kind):
    x = sketch.input(1, 8, 5, 4)
    first, second = sketch.conv(x, 16), sketch.conv(x, 32)
    y = sketch("Concat", first, second, axis=1)
    outputs = [sketch.conv(first, 8, 5), sketch.conv(second, 8, 1), sketch.conv(y, 8, 3)]
    check(sketch.done(*outputs), kind)


def test_a_part_of_two_joins_lies_in_one_of_them(check, sketch, kind):
    x = sketch.input(1, 8, 5, 4)
    first, second, third = (sketch.conv(x, 16) for _ in range(3))
    outputs = [
        sketch.conv(sketch("Concat", first, second, axis=1), 8),
        sketch.conv(sketch("Concat", third, first, axis=1), 8),
        sketch.conv(sketch("Concat", second, second, axis=1), 8),
    ]
    check(sketch.done(*outputs), kind)


def test_joins_of_joins(check, sketch, kind):
    x = sketch.input(1, 8, 5, 4)
    inner = sketch("Concat", sketch.conv(x, 16), sketch.conv(x, 16), axis=1)
    outer = sketch("Concat", inner, sketch.conv(inner, 16), axis=1)
    check(sketch.done(sketch.conv(outer, 8)), kind)


def test_a_split_that_is_joined_again(check, sketch, kind):
    """C2f blocks join both halves and the values that were computed from the second."""
    x = sketch.conv(sketch.input(1, 8, 5, 4), 32)
    first = sketch("Split", x, outputs=2, axis=1)
    second = f"{first}_1"
    more = sketch.conv(second, 16)
    y = sketch("Concat", first, second, more, axis=1)
    z = sketch.conv(y, 8)
    assert copies(sketch.done(z)) == 2
    check(sketch.done(z), kind)


def test_inputs_are_copied(check, sketch, kind):
    x = sketch.input(1, 16, 5, 4)
    y = sketch("Concat", sketch.conv(x, 16), x, axis=1)
    check(sketch.done(sketch.conv(y, 8)), kind)


def test_pools_and_resizes_are_parts_too(check, sketch, kind):
    x = sketch.conv(sketch.input(1, 8, 4, 4), 16)
    pooled = sketch("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    y = sketch("Concat", x, pooled, axis=1)
    check(sketch.done(sketch.conv(y, 8)), kind)


def test_tokens_are_joined_along_their_channels(check, sketch, kind):
    x = sketch.input(1, 6, 24)
    y = sketch("Concat", sketch.linear(x, 16), sketch.linear(x, 32), axis=2)
    check(sketch.done(sketch.linear(y, 8)), kind)


def test_ranges_of_what_is_joined_become_one(sketch):
    x = sketch.input(1, 8, 5, 4)
    first, second = sketch.conv(x, 16), sketch.conv(x, 16)
    y = sketch("Concat", first, second, axis=1)
    graph = sketch.done(sketch.conv(y, 8))
    found = joined(graph, {first: (-1.0, 2.0), second: (0.0, 5.0), y: (-1.0, 4.0), x: (0, 1)})
    assert found == {first: (-1.0, 5.0), second: (-1.0, 5.0), y: (-1.0, 5.0), x: (0, 1)}
    assert joined(graph, {first: (-1.0, 2.0)}) == {first: (-1.0, 2.0)}


def test_heads_whose_parts_are_outputs_too_stay(computes, sketch):
    x = sketch.conv(sketch.input(2, 16, 4, 5), 21)
    cut = sketch("Reshape", x, sketch.constant(np.array([2, 3, 7, 4, 5])))
    y = sketch("Transpose", cut, perm=[0, 1, 3, 4, 2])
    computes(channels_last(sketch.done(cut, y)))
