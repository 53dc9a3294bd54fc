"""Whole Caffe networks, compared with OpenCV and compiled end to end."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream import infer
from slipstream.infer.graph.onnx_file import from_model, to_model
from slipstream.infer.importers import load_model
from slipstream.infer.outputs.boxes import BoxOptions, with_boxes
from slipstream.infer.rewrites import optimise

CONV = "convolution_param {{ num_output: {} kernel_size: {} stride: {} pad: {} bias_term: false }}"


def convolution(net, x, channels, kernel, stride=1):
    """Add a convolution, batch norm, scale and ReLU, the last three in place."""
    before = net.channels[x]
    options = CONV.format(channels, kernel, stride, kernel // 2)
    out = net.add("Convolution", x, options, (channels, before, kernel, kernel))
    norm = net.add(
        "BatchNorm", out, "", (channels,), (channels,), (1,), tops=[out], name=f"bn_{out}"
    )
    assert norm == out
    _, variance, factor = net.weights[f"bn_{out}"]
    variance[:] = variance**2 + 0.5
    factor[:] = 0.999
    shapes = [(channels,)] * 2
    net.add("Scale", out, "scale_param { bias_term: true }", *shapes, tops=[out], name=f"sc_{out}")
    net.channels[out] = channels
    return net.add("ReLU", out, tops=[out], name=f"relu_{out}")


def resnet(net):
    """Add a stem, an identity block and a block with a projection."""
    x = convolution(net, net.input("data", 1, 3, 32, 32), 16, 7, 2)
    x = net.add("Pooling", x, "pooling_param { pool: MAX kernel_size: 3 stride: 2 }")
    net.channels[x] = 16
    for channels, stride in ((16, 1), (24, 2)):
        branch = convolution(net, convolution(net, x, channels, 3, stride), channels, 3)
        skip = x if stride == 1 else convolution(net, x, channels, 1, stride)
        x = net.add("Eltwise", [branch, skip])
        net.add("ReLU", x, tops=[x], name=f"relu_{x}")
        net.channels[x] = channels
    x = net.add("Pooling", x, "pooling_param { pool: AVE global_pooling: true }")
    x = net.add("InnerProduct", x, "inner_product_param { num_output: 10 }", (10, 24), (10,))
    net.add("Softmax", x, name="prob")


def googlenet(net):
    """Add a stem with response normalization, two inception blocks, dropout."""
    net.seed = 1
    data = net.input("data", 1, 3, 56, 48)
    conv = "convolution_param {{ num_output: {} kernel_size: {} stride: {} pad: {} }}"

    def plain(x, before, after, kernel, stride=1):
        options = conv.format(after, kernel, stride, kernel // 2)
        x = net.add("Convolution", x, options, (after, before, kernel, kernel), (after,))
        return net.add("ReLU", x, tops=[x], name=f"relu_{x}")

    x = plain(data, 3, 16, 7, 2)
    x = net.add("Pooling", x, "pooling_param { pool: MAX kernel_size: 3 stride: 2 }")
    x = net.add("LRN", x, "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }")
    before = 16
    for _ in range(2):
        pool = net.add("Pooling", x, "pooling_param { pool: MAX kernel_size: 3 stride: 1 pad: 1 }")
        branches = [
            plain(x, before, 8, 1),
            plain(plain(x, before, 8, 1), 8, 12, 3),
            plain(plain(x, before, 4, 1), 4, 8, 5),
            plain(pool, before, 4, 1),
        ]
        x, before = net.add("Concat", branches), 32
    x = net.add("Pooling", x, "pooling_param { pool: AVE kernel_size: 7 stride: 3 }")
    x = net.add("Dropout", x, "dropout_param { dropout_ratio: 0.4 }", tops=[x], name="drop")
    size = 32 * 4 * 3
    x = net.add("InnerProduct", x, "inner_product_param { num_output: 10 }", (10, size), (10,))
    net.add("Softmax", x, name="prob")


def ssd(net):
    """Add two scales of boxes and classes, flattened and joined, and their prior boxes."""
    data = net.input("data", 1, 3, 48, 48)
    x = convolution(net, data, 16, 3, 2)
    kinds = {"loc": 4, "conf": 5}
    heads = {"loc": [], "conf": [], "priors": []}
    for scale in (0, 1):
        x = convolution(net, x, 24, 3, 2)
        normed = net.add(
            "Normalize", x, "norm_param { across_spatial: false channel_shared: false }", (24,)
        )
        for kind, numbers in kinds.items():
            count = 4 * numbers
            head = net.add(
                "Convolution",
                normed,
                f"convolution_param {{ num_output: {count} kernel_size: 3 pad: 1 }}",
                (count, 24, 3, 3),
                (count,),
            )
            head = net.add("Permute", head, "permute_param { order: 0 order: 2 order: 3 order: 1 }")
            heads[kind].append(net.add("Flatten", head))
        sizes = (
            f"min_size: {10 + 10 * scale} max_size: {20 + 10 * scale} aspect_ratio: 2 clip: true"
        )
        options = f"prior_box_param {{ {sizes} variance: 0.1 }}"
        heads["priors"].append(net.add("PriorBox", [normed, data], options))
    net.add("Concat", heads["loc"], name="mbox_loc")
    net.add("Concat", heads["priors"], "concat_param { axis: 2 }", name="mbox_priorbox")
    conf = net.add("Concat", heads["conf"])
    conf = net.add("Reshape", conf, "reshape_param { shape { dim: 0 dim: -1 dim: 5 } }")
    conf = net.add("Softmax", conf, "softmax_param { axis: 2 }")
    net.add("Flatten", conf, name="mbox_conf")


@pytest.mark.parametrize("make", [resnet, googlenet, ssd])
def test_networks_beside_opencv(new_net, same, make):
    net = new_net()
    make(net)
    found = same(net)
    if make is ssd:
        assert sorted(found) == ["mbox_conf", "mbox_loc", "mbox_priorbox"]


DETECTION = """detection_output_param { num_classes: 5 background_label_id: 0 code_type: CODE
    share_location: true variance_encoded_in_target: false
    nms_param { nms_threshold: 0.45 top_k: 400 } keep_top_k: 20 confidence_threshold: 0.3 }"""


@pytest.mark.parametrize("code", ["CORNER", "CENTER_SIZE"])
def test_detections_beside_opencv(new_net, tmp_path, code):
    """With the note's options, the imported boxes are those that OpenCV selects."""
    net = new_net()
    ssd(net)
    heads = ["mbox_loc", "mbox_conf", "mbox_priorbox"]
    net.add("DetectionOutput", heads, DETECTION.replace("CODE", code), name="found")
    files = net.write(tmp_path)
    imported = load_model(files[0])
    assert imported.notes[0].endswith("--boxes iou=0.45,score=0.3,most=20")
    options = BoxOptions(iou=0.45, score=0.3, most=20)
    feeds = net.feeds()
    found = net.run(with_boxes(imported.graph, options), feeds)
    count = int(found["counts"][0])
    right = net.opencv(files, feeds, ["found"])[0][0, 0]
    assert count == len(right) > 5
    rows = np.column_stack([found[name][0, :count] for name in ("labels", "scores", "boxes")])
    rows, right = (table[np.argsort(-table[:, 1])] for table in (rows, right[:, 1:]))
    np.testing.assert_allclose(rows, right, atol=1e-5)


@pytest.mark.slow("compiled network of a framework")
def test_a_network_is_compiled_and_loaded(new_net, same, tmp_path):
    net = new_net()
    resnet(net)
    same(net)
    model = tmp_path / "net.prototxt"
    report = infer.compile(
        model, tmp_path / "model.slip", infer.CompileOptions(seconds=2, most_rounds=5, threads=1)
    )
    assert report.origin == str(model)
    feeds = net.feeds()
    right = load_model(model).graph
    with infer.load(tmp_path / "model.slip") as compiled:
        found = compiled(feeds["data"])
    session = net.run(right, feeds)
    np.testing.assert_allclose(found, session["prob"], atol=2e-3)


def test_the_rewrites_fold_batch_norm_and_scale(new_net, tmp_path):
    net = new_net()
    resnet(net)
    net.write(tmp_path)
    graph, _ = optimise(load_model(tmp_path / "net.prototxt").graph)
    assert not {"BatchNormalization", "Mul"} & {node.op for node in graph.nodes}


def test_the_graph_is_a_valid_model_of_onnx(new_net, tmp_path):
    net = new_net()
    googlenet(net)
    net.write(tmp_path)
    graph = load_model(tmp_path / "net.prototxt").graph
    again = from_model(to_model(graph))
    assert {name: again.shape(name) for name in graph.values} == {
        name: graph.shape(name) for name in graph.values
    }


# ---- LeNet, in the older form --------------------------------------------------------------------

LENET = """
name: "LeNet"
layers { name: "mnist" type: DATA top: "data" top: "label" include { phase: TRAIN } }
layers { name: "mnist" type: DATA top: "data" top: "label" include: { phase: TEST } }
layers { name: "conv1" type: CONVOLUTION bottom: "data" top: "conv1" blobs_lr: 1 blobs_lr: 2
  convolution_param { num_output: 20 kernel_size: 5 weight_filler { type: "xavier" } } }
layers { name: "pool1" type: POOLING bottom: "conv1" top: "pool1"
  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layers { name: "conv2" type: CONVOLUTION bottom: "pool1" top: "conv2"
  convolution_param < num_output: 50, kernel_size: 5; > }
layers { name: "pool2" type: POOLING bottom: "conv2" top: "pool2"
  pooling_param { pool: 0 kernel_size: 2 stride: 2 } }
layers { name: 'ip1' type: INNER_PRODUCT bottom: "pool2" top: "i" "p1"
  inner_product_param { num_output: 500 } }   # comments, and texts in two pieces
layers { name: "relu1" type: RELU bottom: "ip1" top: "ip1" }
layers { name: "ip2" type: INNER_PRODUCT bottom: "ip1" top: "ip2"
  inner_product_param { num_output: 10 } }
layers { name: "accuracy" type: ACCURACY bottom: "ip2" bottom: "label" top: "accuracy" }
layers { name: "loss" type: SOFTMAX_LOSS bottom: "ip2" bottom: "label" top: "loss" }
"""
SHAPES = {
    "conv1": [(20, 1, 5, 5), (20,)],
    "conv2": [(50, 20, 5, 5), (50,)],
    "ip1": [(500, 800), (500,)],
    "ip2": [(10, 500), (10,)],
}


def test_lenet_of_the_older_form_in_its_training_file(new_net, computed, same, tmp_path):
    """OpenCV reads the same weights from the newer form, without the layers for training."""
    newer = new_net()
    newer.input("data", 1, 1, 28, 28)
    newer.weights = {name: [newer.drawn(s) for s in shapes] for name, shapes in SHAPES.items()}
    names = {"CONVOLUTION": "Convolution", "POOLING": "Pooling", "INNER_PRODUCT": "InnerProduct"}
    for line in LENET.replace("\n  ", " ").splitlines():
        if line.startswith("layers") and not any(w in line for w in ("DATA", "ACCURACY", "LOSS")):
            for old, new in {**names, "RELU": "ReLU"}.items():
                line = line.replace(f"type: {old}", f'type: "{new}"')
            newer.text += line.replace("layers {", "layer {").split("#")[0] + "\n"
    feeds = newer.feeds()
    right = same(newer, feeds)
    (tmp_path / "old.prototxt").write_text(LENET)
    (tmp_path / "old.caffemodel").write_bytes(newer.binary(legacy=True))
    model = load_model(tmp_path / "old.prototxt", shapes={"data": (1, 1, 28, 28)})
    assert model.graph.outputs == ["ip2"]
    assert model.notes == (
        "layers for training were left out: accuracy (Accuracy), loss (SoftmaxWithLoss)",
    )
    np.testing.assert_array_equal(newer.run(model.graph, feeds)["ip2"], right["ip2"])
