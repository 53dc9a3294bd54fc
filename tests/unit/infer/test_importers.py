"""Models of several kinds give the same graphs; models that cannot be imported are refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from slipstream.errors import UsageError
from slipstream.infer.graph.onnx_file import to_model
from slipstream.infer.importers import load_model, parse_shape

FACTORY = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x):
        return torch.relu(self.layer(x))

def make():
    return Net()

def make_with_inputs():
    return Net(), (torch.ones(2, 4),)
"""


@pytest.fixture
def model(net):
    return to_model(net)


@pytest.fixture
def open_model(build):
    """Return a model whose batch, rows and columns are open."""
    graph = build(
        """(float[N,3,H,W] image, float[N,2] more) => (float[N,3,H,W] y, float[N,2] z) {
            y = Relu(image) z = Relu(more)
        }"""
    )
    return to_model(graph).SerializeToString()


# ---- ONNX ----------------------------------------------------------------------------------------


def test_onnx_as_bytes_and_as_a_file(model, net, tmp_path):
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    for source in (model.SerializeToString(), tmp_path / "net.onnx", str(tmp_path / "net.onnx")):
        graph = load_model(source).graph
        assert [node.op for node in graph.nodes] == [node.op for node in net.nodes]
        assert graph.shape("logits") == (1, 5)


@pytest.mark.parametrize("data", [b"", b"no model", b"PK\3\4" + bytes(50)])
def test_what_is_no_onnx_is_refused(data, tmp_path):
    with pytest.raises(UsageError, match="ONNX model"):
        load_model(data)
    (tmp_path / "bad.onnx").write_bytes(data)
    with pytest.raises(UsageError, match=r"bad\.onnx"):
        load_model(tmp_path / "bad.onnx")


def test_a_file_that_is_not_there():
    with pytest.raises(UsageError, match=r"no\.onnx.*No such file"):
        load_model("no.onnx")


def test_operators_that_onnx_has_not_are_all_named(model):
    model.graph.node[0].op_type = "ConvUnheard"
    model.graph.node[1].domain = "of.somebody"
    with pytest.raises(UsageError, match=r"ConvUnheard, of\.somebody\.Sigmoid"):
        load_model(model.SerializeToString())


def test_older_operators_are_converted(build):
    graph = build(
        "(float[1,2,3] x) => (float[1,2] y) { y = ReduceMax<axes=[2], keepdims=0>(x) }", opset=11
    )
    converted = load_model(to_model(graph).SerializeToString()).graph
    assert converted.opsets[""] >= 13


def test_kinds_that_are_not_known_are_refused_with_those_that_are():
    for source in ("model.caffemodel", "model.bin", 3):
        with pytest.raises(UsageError, match=r"allowed: an ONNX model.*torch\.nn\.Module"):
            load_model(source)


# ---- shapes --------------------------------------------------------------------------------------


def test_a_size_given_once_counts_for_its_name(open_model):
    imported = load_model(open_model, shapes={"image": (4, 3, 8, 9)})
    assert imported.graph.inputs["more"].fixed == (4, 2)
    assert (imported.graph.shape("y"), imported.graph.shape("z")) == ((4, 3, 8, 9), (4, 2))


def test_an_open_batch_is_one_and_that_is_noted(build):
    graph = build("(float[N,3] x) => (float[N,3] y) { y = Relu(x) }")
    imported = load_model(to_model(graph).SerializeToString())
    assert imported.graph.shape("y") == (1, 3)
    assert "batch size of 'x' is open" in imported.notes[0]


def test_a_negative_size_is_an_open_one(build):
    """The exporter of PaddlePaddle writes open sizes as negative numbers."""
    graph = build("(float[N,3,H] x) => (float[N,3,H] y) { y = Relu(x) }")
    model = to_model(graph)
    for item in (*model.graph.input, *model.graph.output):
        item.type.tensor_type.shape.dim[0].dim_value = -1
    imported = load_model(model.SerializeToString(), shapes={"x": (2, 3, 8)})
    assert imported.graph.shape("y") == (2, 3, 8)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({}, r"'image' has the shape \(N, 3, H, W\).*--shape image=1,3,224,224"),
        ({"picture": (1,)}, "no input 'picture'; it has image, more"),
        ({"image": (1, 4, 8, 8)}, r"\(N, 3, H, W\), not \(1, 4, 8, 8\)"),
        ({"image": (1, 3, 8)}, r"not \(1, 3, 8\)"),
    ],
)
def test_shapes_that_do_not_suit_are_refused(open_model, shapes, message):
    with pytest.raises(UsageError, match=message):
        load_model(open_model, shapes=shapes)


def test_shapes_are_parsed():
    assert parse_shape("image=1,3,224,224") == ("image", (1, 3, 224, 224))
    assert parse_shape("a=b:0=7") == ("a=b:0", (7,))
    for text in ("image", "image=", "=1,2", "image=1,x", "image=1,-2"):
        with pytest.raises(UsageError, match="allowed: name=1,3,224,224"):
            parse_shape(text)


# ---- PyTorch -------------------------------------------------------------------------------------


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_modules_name_their_inputs_and_are_compared(torch):
    class Net(torch.nn.Module):
        def forward(self, first, second):
            return {"sum": first + second, "product": first * second}

    imported = load_model(Net(), {"first": torch.ones(2, 3), "second": np.ones((2, 3), "f4")})
    assert list(imported.graph.inputs) == ["first", "second"]
    assert imported.graph.outputs == ["sum", "product"]
    assert "dB" in imported.notes[0]
    assert imported.module is not None


def test_modules_may_take_and_give_scalars(torch):
    class Scaled(torch.nn.Module):
        def forward(self, x, factor):
            return x * factor, (x * factor).sum()

    imported = load_model(Scaled(), {"x": torch.ones(2, 3), "factor": torch.tensor(2.0)})
    assert imported.graph.shape("factor") == ()
    assert imported.graph.shape(imported.graph.outputs[1]) == ()


def test_modules_are_put_into_eval_mode(torch):
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)).train()
    assert [node.op for node in load_model(module, torch.ones(1, 4)).graph.nodes] == ["Gemm"]


@pytest.mark.slow("compiled network of a framework")
def test_exported_programs_and_their_files(torch, tmp_path):
    program = torch.export.export(torch.nn.Sequential(torch.nn.Linear(4, 3)), (torch.ones(2, 4),))
    torch.export.save(program, tmp_path / "net.pt2")
    for source in (program, tmp_path / "net.pt2"):
        graph = load_model(source).graph
        assert [value.fixed for value in graph.inputs.values()] == [(2, 4)]
        assert [node.op for node in graph.nodes] == ["Gemm"]


def test_a_file_that_is_no_program_is_refused(torch, tmp_path):
    (tmp_path / "bad.pt2").write_bytes(b"nothing")
    with pytest.raises(UsageError, match=r"bad\.pt2: torch\.export\.load cannot read it"):
        load_model(tmp_path / "bad.pt2")


def test_factories_give_modules_with_or_without_inputs(torch, tmp_path, monkeypatch):
    (tmp_path / "a_factory.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    assert load_model("a_factory:make", shapes={"x": (5, 4)}).graph.shape("output") == (5, 3)
    assert load_model("a_factory:make_with_inputs").graph.shape("output") == (2, 3)
    with pytest.raises(UsageError, match=r"example inputs, which have their own shapes.*for x"):
        load_model("a_factory:make_with_inputs", shapes={"x": (5, 4)})
    with pytest.raises(UsageError, match="the arguments are x"):
        load_model("a_factory:make")
    with pytest.raises(UsageError, match="no_such"):
        load_model("a_factory:no_such")


def test_operators_without_counterpart_are_all_named(torch):
    class Net(torch.nn.Module):
        def forward(self, x):
            return torch.special.bessel_j0(x) + torch.special.i0e(x)

    with pytest.raises(UsageError, match="special_bessel_j0, aten::special_i0e"):
        load_model(Net(), torch.ones(3))


def test_modules_that_draw_random_numbers_are_found_out(torch):
    class Net(torch.nn.Module):
        def forward(self, x):
            return x + torch.rand_like(x)

    with pytest.raises(UsageError, match="something else than the module"):
        load_model(Net(), torch.ones(30))


def test_outputs_that_are_no_tensors_are_refused(torch):
    class Net(torch.nn.Module):
        def forward(self, x):
            return x, "text"

    with pytest.raises(UsageError, match="returns Tensor, str"):
        load_model(Net(), torch.ones(3))


def test_importing_onnx_needs_no_torch(model, tmp_path):
    onnx.save(model, tmp_path / "net.onnx")
    assert load_model(tmp_path / "net.onnx").module is None
