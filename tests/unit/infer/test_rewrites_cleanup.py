"""Dead nodes, duplicates, identities and chains of layout operators."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from slipstream.infer.graph.graph import Subgraph
from slipstream.infer.graph.onnx_file import from_model
from slipstream.infer.rewrites import optimise


def test_dead_nodes_and_constants_go(build, rewritten):
    graph = build(
        "(float[2] x) => (float[2] y) { a = Relu(x) b = Add(a, c) y = Abs(x) }", c=[1.0, 2.0]
    )
    outcome = rewritten(graph)
    assert outcome.ops == ["Abs"]
    assert outcome.graph.constants == {}
    assert outcome.graph.values.keys() == {"y"}


# ---- duplicates -------------------------------------------------------------------------------


def test_nodes_that_compute_the_same_become_one(build, rewritten):
    graph = build(
        """(float[2] x, float[2] z) => (float[2] y) {
            a = Add(x, z) b = Add(z, x) c = Exp(a) d = Exp(b) y = Sub(c, d)
        }"""
    )
    assert rewritten(graph).ops == ["Add", "Exp", "Sub"]


def test_nodes_with_other_attributes_or_order_differ(build, rewritten):
    graph = build(
        """(float[2,2] x, float[2,2] z) => (float[2,2] y) {
            a = Sub(x, z) b = Sub(z, x) c = LeakyRelu <alpha=0.1> (a) d = LeakyRelu <alpha=0.2> (a)
            e = Mul(b, c) y = Mul(e, d)
        }"""
    )
    assert len(rewritten(graph).ops) == 6


def test_an_output_is_not_merged_away(build, rewritten):
    graph = build("(float[2] x) => (float[2] y, float[2] z) { y = Exp(x) z = Exp(x) }")
    assert rewritten(graph).ops == ["Exp", "Exp"]


def test_equal_constants_become_one(build, rewritten):
    graph = build(
        "(float[2] x) => (float[2] y) { a = Mul(x, b) y = Max(a, c) }", b=[0.5, 2.0], c=[0.5, 2.0]
    )
    assert len(rewritten(graph).graph.constants) == 1


def test_zeros_of_both_signs_stay_apart(build, rewritten):
    graph = build(
        "(float[2] x) => (float[2] y) { a = Max(x, b) d = Div(a, c) y = Abs(d) }",
        b=[0.0, 0.0],
        c=[-0.0, -0.0],
    )
    assert len(optimise(graph)[0].constants) == 2


# ---- identities -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "b = Identity(a)",
        "b = Dropout(a)",
        "b = Cast <to=1> (a)",
        "b = Reshape(a, shape)",
        "b = Reshape(a, copied)",
        "b = Flatten <axis=1> (a)",
        "b = Slice(a, zero, end)",
        "b = Slice(a, zero, two, zero)",
        "b = Expand(a, shape)",
        "b = Transpose <perm=[0,1]> (a)",
        "b = Pad(a, pads)",
        "b = Concat <axis=0> (a)",
        "b = Add(a, nought)",
        "b = Sub(a, nought)",
        "b = Mul(one, a)",
        "b = Div(a, ones)",
        "b = Pow(a, one)",
        "b = Sum(a)",
    ],
)
def test_what_passes_its_input_on_goes(build, rewritten, text):
    graph = build(
        f"(float[2,3] x) => (float[2,3] y) {{ a = Relu(x) {text} y = Exp(b) }}",
        shape=[2, 3],
        copied=[0, -1],
        zero=[0],
        two=[2],
        end=[2**63 - 1],
        pads=[0, 0, 0, 0],
        nought=0.0,
        one=1.0,
        ones=[1.0, 1.0, 1.0],
    )
    assert rewritten(graph).ops == ["Exp", "Relu"]


@pytest.mark.parametrize(
    "text",
    [
        "b, mask = Dropout(a) m = Cast <to=1> (mask) c = Mul(m, b)",
        "c = Reshape(a, turned)",
        "c = Slice(a, one_index, end, zero)",
        "c = Slice(a, end, zero, zero, back)",
        "c = Sub(nought, a)",
        "c = Div(one, a)",
        "c = Pow(one, a)",
        "c = Add(a, wide)",
        "c = Mul(a, higher)",
    ],
)
def test_what_only_looks_like_it_stays(build, rewritten, text):
    graph = build(
        f"(float[2,3] x) => (float y) {{ a = Exp(x) {text} y = ReduceMax <keepdims=0> (c) }}",
        turned=[3, 2],
        zero=[0],
        one_index=[1],
        end=[2**63 - 1],
        back=[-1],
        nought=0.0,
        one=1.0,
        wide=np.zeros((4, 2, 3)),
        higher=np.ones((1, 1, 1, 1)),
    )
    assert len(rewritten(graph).ops) > 2


def test_identity_before_an_output_gives_its_name_to_the_node_before(build, rewritten):
    graph = build("(float[2] x) => (float[2] y) { a = Exp(x) b = Abs(a) y = Identity(a) }")
    outcome = rewritten(graph)
    assert outcome.node("Exp").outputs == ["y"]


def test_identity_between_input_and_output_stays(build, rewritten):
    assert rewritten(build("(float[2] x) => (float[2] y) { y = Identity(x) }")).ops == ["Identity"]


def test_identity_between_two_outputs_stays(build, rewritten):
    graph = build("(float[2] x) => (float[2] y, float[2] z) { y = Exp(x) z = Identity(y) }")
    assert rewritten(graph).ops == ["Exp", "Identity"]


def test_what_a_subgraph_reads_keeps_its_name(rewritten):
    proto = onnx.parser.parse_graph(
        """tested (bool t, float[2] x) => (float[2] y) {
            e = Exp(x) a = Identity(e)
            y = If (t) <
                then_branch = g1 () => (float[2] p) { p = Abs(a) },
                else_branch = g2 () => (float[2] q) { q = Neg(a) }
            >
        }"""
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(proto, opset_imports=opsets, ir_version=10)
    outcome = rewritten(from_model(model))
    assert outcome.node("Exp").outputs == ["a"]
    branch = outcome.node("If").attributes["then_branch"]
    assert isinstance(branch, Subgraph)
    assert branch.reads == {"a"}


# ---- layout -----------------------------------------------------------------------------------


def test_transposes_that_cancel_go(build, rewritten):
    graph = build(
        """(float[2,3,4] x) => (float[2,3,4] y, float[3,4,2] z) {
            a = Transpose <perm=[1,2,0]> (x) b = Transpose <perm=[2,0,1]> (a) y = Exp(b) z = Abs(a)
        }"""
    )
    assert rewritten(graph).ops == ["Abs", "Exp", "Transpose"]


def test_two_transposes_become_one(build, rewritten):
    graph = build(
        """(float[2,3,4] x) => (float[4,2,3] y) {
            a = Transpose <perm=[0,2,1]> (x) y = Transpose <perm=[1,0,2]> (a)
        }"""
    )
    assert rewritten(graph).node("Transpose").get("perm") == [2, 0, 1]


def test_moving_axes_of_length_1_is_a_reshape(build, rewritten):
    graph = build(
        """(float[1,6,1,4] x) => (float[6,1,1,4] y) {
            a = Exp(x) y = Transpose <perm=[1,0,2,3]> (a)
        }"""
    )
    assert rewritten(graph).ops == ["Exp", "Reshape"]


def test_swapping_the_last_axes_needs_no_reshape(build, rewritten):
    graph = build(
        """(float[2,3,4,5] x) => (float[2,3,5,4] y) {
            a = Reshape(x, joined) b = Transpose <perm=[0,2,1]> (a) y = Reshape(b, back)
        }""",
        joined=[6, 4, 5],
        back=[2, 3, 5, 4],
    )
    assert rewritten(graph).node("Transpose").get("perm") == [0, 1, 3, 2]


def test_reshape_of_swapped_axes_that_parts_them_stays(build, rewritten):
    graph = build(
        """(float[2,3,4,5] x) => (float[6,4,5] y) {
            a = Reshape(x, joined) b = Transpose <perm=[0,2,1]> (a) y = Reshape(b, joined)
        }""",
        joined=[6, 4, 5],
    )
    assert rewritten(graph).ops == ["Reshape", "Reshape", "Transpose"]


def test_chain_of_reshapes_becomes_one(build, rewritten):
    graph = build(
        """(float[2,3] x) => (float[1,6] y) {
            a = Unsqueeze(x, axes) b = Reshape(a, shape) c = Unsqueeze(b, zero)
            y = Flatten <axis=1> (c)
        }""",
        axes=[1, 3],
        shape=[3, 2],
        zero=[0],
    )
    assert rewritten(graph).ops == ["Reshape"]


def test_reshapes_that_undo_each_other_go_with_unknown_sizes(build, rewritten):
    graph = build(
        """(float[n,4] x) => (float[n,4] y) {
            a = Unsqueeze(x, one) b = Squeeze(a, one) y = Exp(b)
        }""",
        one=[1],
    )
    assert rewritten(graph).ops == ["Exp"]


def test_chain_of_reshapes_with_two_unknown_sizes_stays(build, rewritten):
    graph = build(
        """(float[n,4,m] x, float[k,l,4] z) => (float[k,l,4] y) {
            a = Unsqueeze(x, zero) shape = Shape(z) y = Reshape(a, shape)
        }""",
        zero=[0],
    )
    assert rewritten(graph).ops == ["Reshape", "Shape", "Unsqueeze"]


def test_mean_over_height_and_width_is_a_pool(build, rewritten):
    graph = build("(float[2,3,4,5] x) => (float[2,3,1,1] y) { y = ReduceMean <axes=[-1,-2]> (x) }")
    assert rewritten(graph).ops == ["GlobalAveragePool"]


@pytest.mark.parametrize("attributes", ["axes=[1,2]", "axes=[2,3], keepdims=0"])
def test_other_means_are_no_pools(build, rewritten, attributes):
    graph = build(
        f"""(float[2,3,4,5] x) => (float y) {{
            m = ReduceMean <{attributes}> (x) y = ReduceMax <keepdims=0> (m)
        }}"""
    )
    assert "ReduceMean" in rewritten(graph).ops
