"""Caffe's files: how they are found, which are refused, and how damaged ones behave."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.importers import load_model
from slipstream.infer.importers.caffe import read_caffe
from slipstream.infer.importers.caffe.text import parse
from slipstream.infer.importers.caffe.wire import read_blobs


@pytest.fixture
def small(new_net):
    """Return a network with layers of several kinds."""
    net = new_net()
    data = net.input("data", 1, 3, 8, 8)
    x = net.add(
        "Convolution",
        data,
        "convolution_param { num_output: 4 kernel_size: 3 }",
        (4, 3, 3, 3),
        (4,),
    )
    x = net.add("Pooling", x, "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }")
    x = net.add("LRN", x, "lrn_param { local_size: 3 }")
    x = net.add("Reshape", x, "reshape_param { shape { dim: 0 dim: -1 } }")
    x = net.add("InnerProduct", x, "inner_product_param { num_output: 5 }", (5, 64), (5,))
    net.add("Softmax", x, name="prob")
    return net


# ---- found ---------------------------------------------------------------------------------------


def test_weights_lie_beside_or_are_named(small, tmp_path):
    model, weights = small.write(tmp_path)
    first = load_model(str(model)).graph
    other = weights.rename(tmp_path / "iter_1000.caffemodel")
    with pytest.raises(
        UsageError, match=r"no weight file .*net\.caffemodel; name it with --weights"
    ):
        load_model(model)
    again = load_model(model, weights=other).graph
    feeds = small.feeds()
    np.testing.assert_array_equal(small.run(first, feeds)["prob"], small.run(again, feeds)["prob"])


def test_weights_for_other_models_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"no separate weights"):
        load_model("net.onnx", weights="net.caffemodel")


def test_the_shape_may_be_another_one(small, tmp_path):
    small.write(tmp_path)
    graph = load_model(tmp_path / "net.prototxt", shapes={"data": (4, 3, 8, 8)}).graph
    assert graph.shape("prob") == (4, 5)
    with pytest.raises(UsageError, match=r"no input image; it has data"):
        load_model(tmp_path / "net.prototxt", shapes={"image": (4, 3, 8, 8)})
    with pytest.raises(UsageError, match=r"layer5 \(InnerProduct\).*\(5, 64\), not \(5, 144\)"):
        load_model(tmp_path / "net.prototxt", shapes={"data": (4, 3, 12, 12)})


@pytest.mark.parametrize(
    "text",
    [
        'input: "data" input_dim: 2 input_dim: 6 input_dim: 7 input_dim: 9',
        'input: "data" input_shape { dim: [2, 6, 7, 9] }',
        'layer { name: "d" type: "DummyData" top: "data"'
        " dummy_data_param { num: 2 channels: 6 height: 7 width: 9 } }",
        'layer { name: "d" type: "MemoryData" top: "data" top: "label"'
        " memory_data_param { batch_size: 2 channels: 6 height: 7 width: 9 } }",
    ],
)
def test_ways_to_say_the_input(new_net, tmp_path, text):
    net = new_net()
    net.text = text + "\n"
    net.add("ReLU", "data", name="out")
    graph, _ = read_caffe(*net.write(tmp_path), {})
    assert {name: value.fixed for name, value in graph.inputs.items()} == {"data": (2, 6, 7, 9)}


@pytest.mark.parametrize(
    ("rules", "used"),
    [
        ("include { phase: TEST }", True),
        ("include { phase: TRAIN }", False),
        ("exclude { phase: TEST }", False),
        ("exclude { phase: TRAIN }", True),
        ('include { stage: "deploy" }', False),
        ('include { not_stage: "deploy" }', True),
        ("include { min_level: 1 }", False),
        ("include { phase: TRAIN } include { max_level: 0 }", True),
    ],
)
def test_rules_say_which_layers_count(new_net, tmp_path, rules, used):
    net = new_net()
    net.add("ReLU", net.input("data", 1, 2), name="out")
    net.add("TanH", "out", rules, tops=["out"])
    graph, _ = read_caffe(*net.write(tmp_path), {})
    assert [node.op for node in graph.nodes] == ["Relu", "Tanh"][: 1 + used]


# ---- refused -------------------------------------------------------------------------------------


def test_all_layers_that_are_not_known_are_named(new_net, tmp_path):
    net = new_net()
    data = net.input("data", 1, 2, 6, 6)
    for kind in ("SPP", "Python", "SPP"):
        net.add(kind, data)
    net.add("Pooling", data, "pooling_param { pool: STOCHASTIC kernel_size: 2 }")
    net.add("ReLU", data)
    with pytest.raises(
        UsageError, match=r"net\.prototxt.*Pooling of STOCHASTIC \(1\), Python \(1\), SPP \(2\)"
    ):
        read_caffe(*net.write(tmp_path), {})


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (
            "Convolution",
            "convolution_param { num_output: 4 kernel_size: 3 }",
            r"needs 1 blobs.* has 0",
        ),
        ("Convolution", "convolution_param { num_output: 4 }", r"kernel_size is \[0\]"),
        (
            "Convolution",
            "convolution_param { num_output: 4 kernel_size: 3 group: 4 }",
            r"4 groups do not divide",
        ),
        ("Pooling", "pooling_param { kernel_size: 1 stride: 4 }", r"outside an image of 7"),
        ("Pooling", "pooling_param { kernel_size: 3 pad: 3 }", r"padding 3"),
        ("Pooling", "pooling_param { pool: MEAN }", r"pool is 'MEAN'; allowed: MAX, AVE"),
        ("LRN", "lrn_param { local_size: 4 }", r"local_size is 4; allowed: odd"),
        ("LRN", "lrn_param { local_size: x }", r"local_size is 'x'; allowed: an integer"),
        ("Softmax", "softmax_param { axis: 4 }", r"axis is 4; allowed: -4 to 3"),
        ("Concat", 'bottom: "nothing"', r"no layer computes its input nothing"),
        (
            "Reshape",
            "reshape_param { shape { dim: 5 dim: -1 } }",
            r"cannot be reshaped to \[5, -1\]",
        ),
        ("Slice", 'top: "b" top: "c" top: "d"', r"6 elements cannot be cut into 4"),
        ("Log", "log_param { base: 1 }", r"base is 1"),
        ("Permute", "permute_param { order: 7 }", r"order of axes is \[7"),
        ("Tile", "tile_param { tiles: 1000000000 }", r"6000000000.*elements"),
        ("ReLU", "relu_param: 3", r"relu_param is a value"),
        ("BatchNorm", "batch_norm_param { use_global_stats: false }", r"and use_global_stats"),
    ],
)
def test_what_does_not_suit_is_refused_with_the_layer(one, tmp_path, kind, options, message):
    with pytest.raises(UsageError, match=rf"layer1 .*{message}"):
        read_caffe(*one(kind, options).write(tmp_path), {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layer {", r"t:1: expected a word, found ''"),
        ("a: 1 }", r"t:1: expected a word, found '\}'"),
        ("\na 1", r"t:2: expected ':' or '\{', found '1'"),
        ("a: 'x", r"t:1: \"'x\" is not valid in a prototxt"),
        ("a { " * 60, r"more than 50 deep"),
        ("a: [1, 2", r"expected a word"),
        ("a: $", r"not valid in a prototxt"),
    ],
)
def test_texts_that_are_none(text, message):
    with pytest.raises(UsageError, match=message):
        parse(text, "t")


def test_values_of_the_text_format():
    found = parse(
        r'a: -1 a: 0x10 b: 1e-05 c: 1.5f d: inf e: "x\n\"y" "z" f { g: true } h: -2.5E+3', "t"
    )
    assert found.integers("a") == [-1, 16]
    assert [found.number(name, 0) for name in "bcdh"] == [1e-5, 1.5, float("inf"), -2500]
    assert found.text("e") == 'x\n"yz'
    assert found.message("f").flag("g", False)
    assert found.message("absent").integer("x", 7) == 7


def test_files_that_are_not_there_or_something_else(small, tmp_path):
    model, weights = small.write(tmp_path)
    weights.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(UsageError, match=r"net\.caffemodel: this is no caffemodel"):
        load_model(model)
    with pytest.raises(UsageError, match="cannot be read"):
        load_model(model, weights=tmp_path / "none")
    with pytest.raises(UsageError, match=r"none\.prototxt cannot be read"):
        load_model(tmp_path / "none.prototxt", weights=weights)
    model.write_bytes(b"\xff\xfe\0")
    with pytest.raises(UsageError, match=r"net\.prototxt cannot be read"):
        load_model(model)


# ---- damaged -------------------------------------------------------------------------------------


@pytest.mark.slow("damaged files of a framework")
@pytest.mark.parametrize("suffix", ["prototxt", "caffemodel"])
def test_damaged_files_give_an_error_or_a_graph(small, tmp_path, suffix, damaged):
    files = small.write(tmp_path)
    target = tmp_path / f"net.{suffix}"
    whole = target.read_bytes()
    refused = 0
    tracemalloc.start()
    for _ in range(600):
        target.write_bytes(damaged(whole))
        try:
            read_caffe(*files, {})
        except (UsageError, UnsupportedError):
            refused += 1
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 30e6
    assert refused > 120


def test_a_length_that_is_not_there_asks_for_no_memory(tmp_path):
    huge = tmp_path / "net.caffemodel"
    huge.write_bytes(bytes([0xA2, 0x06]) + b"\xff\xff\xff\xff\x7f")
    with pytest.raises(UsageError, match="bytes are missing"):
        read_blobs(huge)
