"""Models in several files, in forms of other tools, and errors in the user's own code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from slipstream import infer
from slipstream.errors import UsageError
from slipstream.infer.importers import load_model
from slipstream.infer.importers.onnx_models import read_onnx

VALUE = helper.make_tensor_value_info


def model_of(nodes, outputs, constants=(), opsets=()):
    graph = helper.make_graph(nodes, "g", [VALUE("x", 1, [1, 64])], outputs, list(constants))
    imports = [helper.make_opsetid("", 17), *opsets]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def external(location, offset=0, length=64 * 64 * 4):
    made = TensorProto(name="w", dims=[64, 64], data_type=1, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, "offset": offset, "length": length}.items():
        made.external_data.add(key=key, value=str(value))
    return made


# ---- constants beside the model ------------------------------------------------------------------


@pytest.fixture
def weights(tmp_path, random):
    """Return a folder with a weight file, whose weights follow eight bytes, and a file above it."""
    (tmp_path / "model").mkdir()
    array = random.standard_normal((64, 64)).astype(np.float32)
    for file in (tmp_path / "model" / "w.bin", tmp_path / "above.bin"):
        file.write_bytes(b"8 bytes:" + array.tobytes())
    return array


def write(tmp_path, constant):
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = model_of([product], [VALUE("y", 1, [1, 64])], [constant])
    path = tmp_path / "model" / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("offset", [8, 6])
def test_constants_are_read_from_files_beside_the_model(tmp_path, weights, offset):
    path = write(tmp_path, external("w.bin", offset))
    found = read_onnx(path)
    content = (tmp_path / "model" / "w.bin").read_bytes()
    expected = np.frombuffer(content[offset : offset + weights.nbytes], np.float32)
    np.testing.assert_array_equal(found.constants["w"].ravel(), expected)
    assert list(found.inputs) == ["x"]
    assert found.constants["w"].flags.aligned


def test_large_constants_stay_in_their_file_until_something_reads_them(tmp_path, weights):
    found = read_onnx(write(tmp_path, external("w.bin", 8)))
    base = found.constants["w"]
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


def test_small_ones_tell_shapes(tmp_path):
    """Exporters put all constants into one file, including those that are shapes."""
    (tmp_path / "all.bin").write_bytes(np.array([8, 8], np.int64).tobytes())
    shape = TensorProto(name="s", dims=[2], data_type=7, data_location=TensorProto.EXTERNAL)
    shape.external_data.add(key="location", value="all.bin")
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    path = tmp_path / "m.onnx"
    path.write_bytes(model_of([node], [VALUE("y", 1, None)], [shape]).SerializeToString())
    assert load_model(path).graph.shape("y") == (8, 8)


def test_links_of_a_user_are_followed(tmp_path, weights):
    """Every file in the cache of Hugging Face is a link."""
    (tmp_path / "model" / "link.bin").symlink_to(tmp_path / "above.bin")
    path = write(tmp_path, external("link.bin", 8))
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "m.onnx").symlink_to(path)
    (tmp_path / "linked" / "link.bin").symlink_to(tmp_path / "model" / "link.bin")
    for model in (path, tmp_path / "linked" / "m.onnx"):
        np.testing.assert_array_equal(read_onnx(model).constants["w"], weights)


@pytest.mark.parametrize(
    ("constant", "message"),
    [
        (external("none.bin"), r"'w' is stored in .*none\.bin, which does not exist; copy that"),
        (external("../above.bin"), r"stored in '\.\./above\.bin'; allowed: a file in the"),
        (
            external("/etc/passwd"),
            "stored in '/etc/passwd'; allowed: a file in the model's",
        ),
        (external(""), "stored in ''"),
        (
            external("w.bin", 16),
            "needs 16384 bytes, but .* has 16376 from byte 16 on; the model is damaged",
        ),
        (external("w.bin", 0, 12), "needs 16384 bytes"),
        (external("w.bin", -4), "the model is damaged"),
    ],
)
def test_files_that_are_not_right_are_named(tmp_path, weights, constant, message):
    with pytest.raises(UsageError, match=message):
        load_model(write(tmp_path, constant))


@pytest.mark.slow("compiled network of a framework")
def test_a_model_of_several_files_is_compiled(tmp_path, weights, random):
    path = write(tmp_path, external("w.bin", 8))
    infer.compile(
        path,
        tmp_path / "m.slip",
        infer.CompileOptions(seconds=0.5, threads=1, engines=("onnxruntime",)),
    )
    x = random.standard_normal((1, 64)).astype(np.float32)
    with infer.load(tmp_path / "m.slip") as model:
        np.testing.assert_allclose(model(x), x @ weights, rtol=1e-4, atol=1e-4)


# ---- forms that other tools write ----------------------------------------------------------------


def compiled(model, tmp_path, x):
    options = {"seconds": 0.5, "threads": 1, "engines": ("onnxruntime",)}
    infer.compile(model.SerializeToString(), tmp_path / "m.slip", infer.CompileOptions(**options))
    with infer.load(tmp_path / "m.slip") as loaded:
        return loaded(x)


@pytest.mark.slow("compiled network of a framework")
@pytest.mark.parametrize("is_flat", [True, False])
def test_sparse_constants_become_whole(tmp_path, random, is_flat):
    sparse = onnx.SparseTensorProto(dims=[64, 64])
    places = np.array([0, 65, 4095]) if is_flat else np.array([[0, 0], [1, 1], [63, 63]])
    sparse.values.CopyFrom(numpy_helper.from_array(np.float32([1, 2, 3]), "w"))
    sparse.indices.CopyFrom(numpy_helper.from_array(places, "w_places"))
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = model_of([product], [VALUE("y", 1, [1, 64])])
    model.graph.sparse_initializer.append(sparse)
    x = random.standard_normal((1, 64)).astype(np.float32)
    expected = np.zeros((1, 64), np.float32)
    expected[0, [0, 1, 63]] = x[0, [0, 1, 63]] * [1, 2, 3]
    np.testing.assert_allclose(compiled(model, tmp_path, x), expected)


def test_an_output_without_a_shape_gets_one():
    output = onnx.ValueInfoProto(name="y")
    output.type.tensor_type.elem_type = TensorProto.FLOAT
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [output])
    assert load_model(model.SerializeToString()).graph.shape("y") == (1, 64)


@pytest.mark.slow("compiled network of a framework")
def test_dictionaries_of_classifiers_are_taken_as_tensors(tmp_path, random):
    """The converter of scikit-learn adds ZipMap at the end by default."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["p"]),
        helper.make_node("ArgMax", ["p"], ["label"], axis=1, keepdims=0),
        helper.make_node(
            "ZipMap", ["p"], ["chances"], domain="ai.onnx.ml", classlabels_int64s=range(64)
        ),
    ]
    chances = onnx.ValueInfoProto(name="chances")
    entry = chances.type.sequence_type.elem_type.map_type
    entry.key_type, entry.value_type.tensor_type.elem_type = TensorProto.INT64, TensorProto.FLOAT
    opset = helper.make_opsetid("ai.onnx.ml", 1)
    model = model_of(nodes, [VALUE("label", 7, [1]), chances], opsets=[opset])
    x = random.standard_normal((1, 64)).astype(np.float32)
    found = compiled(model, tmp_path, x)
    assert found["chances"].shape == (1, 64)
    assert found["chances"].argmax() == found["label"][0] == x.argmax()


def test_sequences_are_refused_by_name():
    node = helper.make_node("SplitToSequence", ["x"], ["parts"], axis=0)
    model = model_of([node], [helper.make_tensor_sequence_value_info("parts", 1, None)])
    with pytest.raises(UsageError, match="the output 'parts' is a sequence; allowed: tensors"):
        load_model(model.SerializeToString())


# ---- a user's own code ---------------------------------------------------------------------------

FACTORIES = """
import torch

def broken():
    return where_it_is_broken()

def where_it_is_broken():
    raise KeyError("the weights")

class Several(torch.nn.Module):
    def forward(self, first, *others):
        return first + sum(others)

class Broken(torch.nn.Module):
    def forward(self, x):
        raise ValueError("of mine")

class Nothing(torch.nn.Module):
    def forward(self, x):
        return x + 1, None

x = torch.ones(1, 4)
several = lambda: (Several(), (x, 2 * x, 3 * x))
broken_module = lambda: (Broken(), x)
nothing = lambda: (Nothing(), x)
"""


@pytest.fixture
def factories(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    (tmp_path / "of_a_user.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "of_a_user", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "words", "line"),
    [
        (
            "broken",
            "the factory of_a_user:broken raised KeyError: 'the weights'",
            'raise KeyError("',
        ),
        ("broken_module", "the module Broken raised ValueError: of mine", 'raise ValueError("of'),
    ],
)
def test_errors_of_a_user_are_shown_with_the_users_lines_alone(factories, name, words, line):
    with pytest.raises(UsageError) as error:
        load_model(f"of_a_user:{name}")
    first, *others = str(error.value).splitlines()
    assert first == words
    assert line in "\n".join(others)
    files = [line for line in others if line.startswith("  File ")]
    assert files
    assert all(str(factories / "of_a_user.py") in line for line in files)


def test_any_number_of_arguments_is_taken_from_the_example(factories):
    graph = load_model("of_a_user:several").graph
    assert list(graph.inputs) == ["first", "others_0", "others_1"]


def test_a_script_that_reads_arguments_as_it_is_imported_is_told_how_not_to(factories):
    text = "import argparse\nargparse.ArgumentParser('theirs').parse_args(['--no-such'])\n"
    (factories / "of_a_script.py").write_text(text)
    with pytest.raises(UsageError, match=r"of_a_script exited during its import \(2\): put the"):
        load_model("of_a_script:make")


def test_outputs_that_are_nothing_are_refused(factories):
    with pytest.raises(UsageError, match="the module returns Tensor, NoneType; allowed"):
        load_model("of_a_user:nothing")


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(UsageError, match=r"nowhere/m\.onnx: cannot be read as an ONNX model"):
        load_model(Path("nowhere/m.onnx"))
