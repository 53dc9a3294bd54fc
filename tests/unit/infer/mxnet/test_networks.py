"""Whole MXNet networks, some of its own collection: compared with MXNet, and compiled."""

from __future__ import annotations

import json

import numpy as np
import pytest

from slipstream import infer
from slipstream.infer.importers import load_model
from slipstream.infer.rewrites import optimise

PICTURE = {"x": (1, 3, 64, 64)}
FULL = {"x": (1, 3, 224, 224)}
LENET = """
(lambda pool: sym.SoftmaxOutput(sym.FullyConnected(sym.Activation(sym.FullyConnected(sym.Flatten(
    pool(pool(x, 8), 16)), num_hidden=32), act_type='relu'), num_hidden=10), name='softmax'))(
    lambda data, filters: sym.Pooling(sym.Activation(sym.Convolution(
        data, kernel=(5, 5), num_filter=filters), act_type='tanh'),
        pool_type='max', kernel=(2, 2), stride=(2, 2)))
"""
ENCODER = """
(lambda heads: sym.LayerNorm(x + sym.FullyConnected(sym.reshape(sym.transpose(sym.reshape(
    sym.batch_dot(sym.softmax(sym.batch_dot(heads(0), heads(1), transpose_b=True) / 2.0), heads(2)),
    shape=(-4, -1, 4, 0, 0)), axes=(0, 2, 1, 3)), shape=(0, 0, -3)),
    num_hidden=16, flatten=False)))(
    lambda part: sym.reshape(sym.transpose(sym.reshape(sym.FullyConnected(
        x, num_hidden=16, flatten=False), shape=(0, 0, -4, 4, -1)), axes=(0, 2, 1, 3)),
        shape=(-3, 0, 0)))
"""
SSD = """
(lambda body: sym.Group([
    sym.concat(*[sym.flatten(sym.transpose(sym.Convolution(item, num_filter=16, kernel=(3, 3),
        pad=(1, 1)), axes=(0, 2, 3, 1))) for item in body], dim=1, name='boxes'),
    sym.softmax(sym.reshape(sym.concat(*[sym.flatten(sym.transpose(sym.Convolution(item,
        num_filter=12, kernel=(3, 3), pad=(1, 1)), axes=(0, 2, 3, 1))) for item in body], dim=1),
        shape=(0, -1, 3)), axis=-1, name='classes')]))(
    [sym.Pooling(sym.LeakyReLU(sym.BatchNorm(sym.Convolution(x, kernel=(3, 3), num_filter=8,
        stride=(s, s), pad=(1, 1), no_bias=True)), act_type='prelu'), kernel=(3, 3), stride=(2, 2),
        pool_type='max', pooling_convention='full') for s in (2, 4)])
"""
ZOO = "mx.gluon.model_zoo.vision.{}(classes=10)"
CASES = {
    "lenet": (LENET, {"x": (2, 1, 28, 28)}),
    "encoder": (ENCODER, {"x": (2, 7, 16)}),
    "ssd": (SSD, PICTURE),
    "resnet18": (ZOO.format("resnet18_v1"), PICTURE),
    "resnet18_v2": (ZOO.format("resnet18_v2"), PICTURE),
    "squeezenet": (ZOO.format("squeezenet1_1"), FULL),
    "mobilenet_v2": (ZOO.format("mobilenet_v2_0_25"), PICTURE),
    "densenet": (ZOO.format("densenet121"), FULL),
}


@pytest.mark.parametrize("name", CASES)
def test_networks_beside_mxnet(same, name):
    same(name)


def test_the_rewrites_fold_batch_norms(mxnet):
    graph = load_model(f"{mxnet('resnet18')}-symbol.json", shapes=PICTURE).graph
    assert "BatchNormalization" not in {node.op for node in optimise(graph)[0].nodes}


@pytest.mark.slow("compiled network of a framework")
def test_a_network_is_compiled_and_loaded(mxnet, tmp_path):
    prefix = mxnet("resnet18")
    target = tmp_path / "model.slip"
    infer.compile(
        f"{prefix}-symbol.json",
        target,
        infer.CompileOptions(shapes=PICTURE, seconds=2, most_rounds=5, threads=1),
    )
    with np.load(f"{prefix}.npz") as stored, infer.load(target) as model:
        (right,) = (stored[key] for key in stored if key.startswith("out:"))
        np.testing.assert_allclose(model(stored["in:x"]), right, rtol=0, atol=0.02 * right.std())


def test_files_of_before_version_0_9(mxnet, tmp_path, same):
    """Their attributes are `param` and `attr`, and batch norms do not list their states."""
    prefix = mxnet("ssd")
    symbol = json.loads((prefix.parent / f"{prefix.name}-symbol.json").read_text())
    before = load_model(f"{prefix}-symbol.json", shapes=PICTURE).graph
    for node in symbol["nodes"]:
        node["param"] = node.pop("attrs", {})
        node["attr"] = {"ctx_group": "stage1"}
        node["backward_source_id"] = -1
        if node["op"] == "BatchNorm":
            del node["inputs"][3:]
    del symbol["attrs"]
    (tmp_path / "old-symbol.json").write_text(json.dumps(symbol))
    params = f"{prefix}-0000.params"
    after = load_model(tmp_path / "old-symbol.json", shapes=PICTURE, weights=params).graph
    assert [node.op for node in after.nodes] == [node.op for node in before.nodes]
    assert after.constants.keys() == before.constants.keys()
