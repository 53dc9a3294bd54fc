"""Branches of If that are known to be taken become part of the graph."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.infer.compiler import compile_model
from slipstream.infer.graph.onnx_file import to_model
from slipstream.infer.options import CompileOptions
from slipstream.infer.run.session import load

IF = """y = If (c) <
    then_branch = g1 () => (float[2] a) {
        two = Constant <value = float[2] {2, 2}> () a = Mul(x, two)
    },
    else_branch = g2 () => (float[2] b) { b = Neg(x) }
>"""


@pytest.mark.parametrize(("condition", "op"), [(True, "Mul"), (False, "Neg")])
def test_the_branch_that_is_taken_stays(build, rewritten, condition, op):
    graph = build(f"(float[2] x) => (float[2] z) {{ {IF} z = Relu(y) }}", c=np.array(condition))
    outcome = rewritten(graph)
    assert outcome.ops == sorted([op, "Relu"])
    assert outcome.matches["branches"] == 1


def test_a_condition_that_follows_from_a_shape_is_known(build, rewritten):
    graph = build(
        f"""(float[2] x) => (float[2] z) {{
            s = Shape(x) t = Gather(s, zero) c = Equal(t, two_rows) {IF} z = Relu(y)
        }}""",
        zero=np.array(0),
        two_rows=np.array(2),
    )
    assert rewritten(graph).ops == ["Mul", "Relu"]


def test_a_condition_that_comes_with_the_input_is_not_known(build, rewritten):
    graph = build(f"(float[2] x, bool c) => (float[2] z) {{ {IF} z = Relu(y) }}")
    assert rewritten(graph).ops == ["If", "Relu"]


def test_branches_with_the_same_names_inside_are_kept_apart(build, rewritten):
    other = IF.replace("y = If", "w = If").replace("Mul(x", "Add(y").replace("{2, 2}", "{3, 3}")
    graph = build(f"(float[2] x) => (float[2] z) {{ {IF} {other} z = Relu(w) }}", c=np.array(True))
    assert rewritten(graph).ops == ["Add", "Mul", "Relu"]


def test_a_branch_in_a_branch(build, rewritten):
    inner = IF.replace("y = If", "a = If").replace("float[2] a", "float[2] d").replace("a =", "d =")
    inner = inner.replace("d = If", "a = If").replace("d = Constant", "two = Constant")
    text = f"""y = If (c) <
        then_branch = g3 () => (float[2] a) {{ {inner} }},
        else_branch = g4 () => (float[2] e) {{ e = Abs(x) }}
    >"""
    graph = build(f"(float[2] x) => (float[2] z) {{ {text} z = Relu(y) }}", c=np.array(True))
    assert rewritten(graph).ops == ["Mul", "Relu"]


def test_a_branch_may_give_a_value_from_around_it(build, rewritten):
    text = IF.replace("{ b = Neg(x) }", "{ b = Identity(x) }")
    graph = build(f"(float[2] x) => (float[2] z) {{ {text} z = Relu(y) }}", c=np.array(False))
    assert rewritten(graph).ops == ["Relu"]


@pytest.mark.slow("package of open sizes")
def test_outputs_whose_shapes_nothing_says_are_in_the_package(build, tmp_path):
    """Branches may have results of different shapes, and then no shape can be inferred."""
    text = IF.replace("float[2] a", "float[N] a").replace("float[2] b", "float[M] b")
    graph = build(f"(float[2] x) => (float[K] y) {{ {text} }}", c=np.array(True))
    path = tmp_path / "model.slip"
    for without in ((), ("branches",)):
        model = to_model(graph).SerializeToString()
        compile_model(
            model, path, CompileOptions(seconds=1, engines=("onnxruntime",), without=without)
        )
        with load(path) as loaded:
            assert loaded.manifest.outputs[0].shape == (2,)
            np.testing.assert_allclose(loaded(np.float32([1, -2])), [2, -4])
