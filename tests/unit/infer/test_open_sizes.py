"""Outputs whose sizes follow from the numbers of an input, from the model to answers."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from slipstream import infer
from slipstream.errors import UnsupportedError
from slipstream.infer.compiler import compile_model
from slipstream.infer.graph.onnx_file import to_model
from slipstream.infer.graph.open_sizes import with_output_shapes
from slipstream.infer.options import CompileOptions
from slipstream.infer.package import first_load
from slipstream.infer.package.package import read, write

BOXES = """(float[1,40,4] boxes, float[1,2,40] scores) => (int64[n,3] chosen) {
    chosen = NonMaxSuppression(boxes, scores, most, iou, least)
}"""


def compiled(graph, path):
    model = to_model(graph).SerializeToString()
    infer.compile(model, path, CompileOptions(seconds=0.5, threads=1, engines=("onnxruntime",)))
    return infer.load(path)


def test_as_many_boxes_as_there_are_come_out(build, random, tmp_path):
    constants = {"most": np.array([10]), "iou": np.float32([0.5]), "least": np.float32([0.9])}
    with compiled(build(BOXES, **constants), tmp_path / "m.slip") as model:
        (output,) = model.manifest.outputs
        assert output.shape == (-1, 3)
        counts = set()
        for share in (0.0, 0.5, 1.0):
            scores = np.full((1, 2, 40), share, np.float32)
            counts.add(len(model(random.random((1, 40, 4)).astype(np.float32), scores)))
        assert counts == {0, 20}


@pytest.mark.slow("package of open sizes")
@pytest.mark.parametrize(
    ("text", "shape", "feeds", "found"),
    [
        (
            "(float[4,4] x) => (int64[2,n] y) { y = NonZero(x) }",
            (2, -1),
            [np.zeros((4, 4)), np.eye(4)],
            [(2, 0), (2, 4)],
        ),
        (
            """(float[8] x) => (float[n] y) {
                zero = Constant <value_float=0.0> () c = Greater(x, zero)
                y = Compress <axis=0> (x, c)
            }""",
            (-1,),
            [np.ones(8), -np.ones(8)],
            [(8,), (0,)],
        ),
        ("(float[6] x) => (float[n] y) { y = Unique(x) }", (-1,), [np.ones(6)], [(1,)]),
        ("(float[6] x) => (float[n] y) { y = Relu(x) }", (6,), [np.ones(6)], [(6,)]),
    ],
)
def test_sizes_that_follow_from_numbers_stay_open(build, tmp_path, text, shape, feeds, found):
    with compiled(build(text), tmp_path / "m.slip") as model:
        assert model.manifest.outputs[0].shape == shape
        assert read(tmp_path / "m.slip").manifest.outputs[0].shape == shape
        assert [model(each.astype(np.float32)).shape for each in feeds] == found


def test_what_counts_in_a_branch_counts(build):
    graph = build("(float[4] x, bool c) => (int64[1,n] y) { y = Identity(x) }")
    inner = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", TensorProto.INT64, [1, None])],
    )
    (node,) = graph.nodes
    from slipstream.infer.graph.graph import Subgraph

    node.op, node.inputs = "If", ["c"]
    node.attributes["then_branch"] = Subgraph(inner.SerializeToString(), frozenset(["x"]))
    runs = [{"y": np.zeros((1, 2), np.int64)}] * 2
    assert with_output_shapes(graph, runs).value("y").shape == (1, None)
    node.attributes.clear()
    assert with_output_shapes(graph, runs).value("y").shape == (1, 2)
    runs = [{"y": np.zeros((1, size), np.int64)} for size in (2, 3)]
    assert with_output_shapes(graph, runs).value("y").shape == (1, None)


# ---- the first load ------------------------------------------------------------------------------


@pytest.mark.slow("package of open sizes")
def test_branches_of_operators_of_another_domain_are_loaded(tmp_path):
    """A user reported that compile succeeded, but the package could not be loaded."""
    shape = [4, 4]
    value = helper.make_tensor_value_info
    fused = helper.make_node("FusedMatMul", ["x", "x"], ["t"], domain="com.microsoft", alpha=2.0)
    plain = helper.make_node("MatMul", ["x", "x"], ["e"])
    branches = {
        f"{name}_branch": helper.make_graph([node], name, [], [value(output, 1, shape)])
        for name, node, output in (("then", fused, "t"), ("else", plain, "e"))
    }
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], **branches)],
        "g",
        [value("x", 1, shape), value("c", TensorProto.BOOL, [])],
        [value("y", 1, shape)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    infer.compile(
        model.SerializeToString(), tmp_path / "m.slip", CompileOptions(seconds=0.5, threads=1)
    )
    with infer.load(tmp_path / "m.slip") as loaded:
        for condition in (True, False):
            found = loaded(np.eye(4, dtype=np.float32), np.array(condition))
            np.testing.assert_array_equal(found, np.eye(4) * (2 if condition else 1))


@pytest.mark.slow("first load of a package")
def test_a_package_that_cannot_be_loaded_is_not_written(build, tmp_path, monkeypatch):
    """The test damages the package while it is written."""
    path = tmp_path / "m.slip"
    path.write_bytes(b"what was there before")

    def damaged(part, package, check):
        write(tmp_path / "whole.slip", package)
        content = (tmp_path / "whole.slip").read_bytes()
        part.with_name("part").write_bytes(content[:-200])
        check(part.with_name("part"))

    monkeypatch.setattr("slipstream.infer.compiler.write", damaged)
    model = to_model(build("(float[6] x) => (float[6] y) { y = Relu(x) }")).SerializeToString()
    with pytest.raises(UnsupportedError, match="cannot be loaded, which is an error of Slipstream"):
        compile_model(model, path, CompileOptions(seconds=0.5, threads=1, engines=("onnxruntime",)))
    assert path.read_bytes() == b"what was there before"


@pytest.mark.slow("first load of a package")
def test_a_check_that_fails_leaves_what_was_there(tmp_path, build):
    path = tmp_path / "m.slip"
    with compiled(build("(float[6] x) => (float[6] y) { y = Relu(x) }"), path):
        before = path.read_bytes()

    def refuse(part):
        assert part != path
        raise UnsupportedError("no")

    with pytest.raises(UnsupportedError, match="no"):
        write(path, read(path), refuse)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["m.slip"]


@pytest.mark.slow("first load of a package")
def test_a_good_package_is_tried_in_silence(tmp_path, build, capfd):
    with compiled(build("(float[6] x) => (float[6] y) { y = Relu(x) }"), tmp_path / "m.slip"):
        first_load.try_package(tmp_path / "m.slip")
    assert capfd.readouterr() == ("", "")
