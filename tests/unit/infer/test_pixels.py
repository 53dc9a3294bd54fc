"""Bytes as input in place of normalised numbers."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.errors import UsageError
from slipstream.infer.accuracy.accuracy import Comparison
from slipstream.infer.engines import ENGINES, Recipe
from slipstream.infer.graph.graph import Value
from slipstream.infer.images.pixels import range_of, with_pixels
from slipstream.infer.images.reader import ImageOptions
from slipstream.infer.native.precision import storable
from slipstream.infer.package.stored_graph import graph_files, read_graph
from slipstream.infer.quantize.observe import METHODS, observe
from slipstream.infer.rewrites import optimise

OPTIONS = ImageOptions()
LEAST_DB = {"fp32": 100.0, "bf16": 30.0, "fp16": 45.0, "int8": 25.0, "int8-weights": 30.0}
# Sixteen channels are as few as a product of bytes is made for.
TEXT = """(float[{n},{c},{h},{w}] image) => (float[{n},24,{h},{w}] y) {{
    a = Conv <kernel_shape=[3,3], pads=[1,1,1,1]> (image, v, b) r = Relu(a)
    y = Conv <kernel_shape=[3,3], pads=[1,1,1,1]> (r, u, d)
}}"""


@pytest.fixture
def model(build):
    """Return a function that makes a small network of images of a size."""

    def make(batch, channels, height, width):
        random = np.random.default_rng(1)
        return build(
            TEXT.format(n=batch, c=channels, h=height, w=width),
            v=random.standard_normal((16, channels, 3, 3)) / 5,
            b=random.standard_normal(16),
            u=random.standard_normal((24, 16, 3, 3)) / 12,
            d=random.standard_normal(24),
        )

    return make


def image_of(graph, seed=2):
    shape = graph.inputs["image"].fixed
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def normalised(pixels):
    """Return bytes (n, h, w, c) as numbers (n, c, h, w), as NumPy computes them."""
    mean, std = np.array(OPTIONS.mean), np.array(OPTIONS.std)
    if pixels.shape[3] == 1:
        mean, std = mean.mean(), std.mean()
    return ((pixels / 255 - mean) / std).transpose(0, 3, 1, 2).astype(np.float32)


def decibels(found, right):
    comparison = Comparison()
    comparison.add(found, right)
    return comparison.snr_db


@pytest.mark.parametrize("name", ["onnxruntime", "openvino", "native"])
@pytest.mark.parametrize(
    ("batch", "channels", "height", "width"), [(1, 3, 16, 16), (2, 3, 9, 13), (1, 1, 7, 5)]
)
def test_every_engine_computes_the_same_from_bytes(model, name, batch, channels, height, width):
    plain = model(batch, channels, height, width)
    graph, _ = optimise(with_pixels(plain, OPTIONS))
    given = image_of(graph)
    engine = ENGINES[name]
    right = ENGINES["onnxruntime"].prepare(plain, Recipe(engine="onnxruntime"), 1)
    expected = right.run({"image": normalised(given)})
    histograms = observe(graph, [{"image": given}], storable(graph))
    ranges = {value: item.range("min-max") for value, item in histograms.items()}
    for precision in set(engine.precisions()) - {"int8-dynamic"}:  # there are no matrices
        recipe = Recipe(engine=name, precision=precision, ranges=ranges)
        executable = engine.prepare(graph, recipe, 1)
        assert decibels(executable.run({"image": given}), expected) > LEAST_DB[precision]
        executable.close()
    right.close()


def test_the_graph_as_imported_takes_bytes_too(model):
    graph = with_pixels(model(1, 3, 8, 8), OPTIONS)
    recipe = Recipe(engine="onnxruntime", rewrites=False)
    executable = ENGINES["onnxruntime"].prepare(graph, recipe, 1)
    assert executable.run({"image": image_of(graph)})["y"].shape == (1, 24, 8, 8)


def test_the_range_is_that_of_all_bytes_whatever_was_observed(model):
    graph = with_pixels(model(1, 3, 8, 8), OPTIONS)
    (node,) = (node for node in graph.nodes if node.op == "Pixels")
    black = {"image": np.zeros((1, 8, 8, 3), np.uint8)}
    found = observe(graph, [black], [node.output])[node.output]
    for method in METHODS:
        assert found.range(method) == pytest.approx(range_of(node))
    assert range_of(node) == pytest.approx((-0.485 / 0.229, (1 - 0.406) / 0.225))


def test_it_is_stored_and_read_again(model):
    graph, _ = optimise(with_pixels(model(2, 3, 8, 9), OPTIONS))
    files = {
        name: np.frombuffer(b"".join(pieces), np.uint8)
        for name, pieces in graph_files(graph, "m").items()
    }
    again = read_graph(files.pop("m").tobytes(), files, "test")
    assert again.inputs == {"image": Value(np.dtype(np.uint8), (2, 8, 9, 3))}
    assert again.shape(again.nodes[0].output) == (2, 3, 8, 9)


def test_models_of_bytes_stay_as_they_are(build):
    graph = build("(uint8[1,8,8,3] x) => (uint8[1,8,8,3] y) { y = Identity(x) }")
    assert with_pixels(graph, OPTIONS) is graph


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(float[1,8] x) => (float[1,8] y) { y = Relu(x) }", "0 of the inputs x"),
        ("(float[1,8,8,3] x) => (float[1,8,8,3] y) { y = Relu(x) }", "'x' is float32"),
        ("(uint8[1,3,8,8] x) => (uint8[1,3,8,8] y) { y = Identity(x) }", "'x' is uint8"),
        (
            "(float[1,3,8,8] a, float[1,3,8,8] b) => (float[1,3,8,8] y) { y = Add(a, b) }",
            "2 of the inputs a",
        ),
    ],
)
def test_inputs_that_are_no_image_are_named(build, text, message):
    with pytest.raises(UsageError, match=message):
        with_pixels(build(text), OPTIONS)


def test_options_have_to_suit_the_channels(model):
    with pytest.raises(UsageError, match="2 channels; the image has 3"):
        with_pixels(model(1, 3, 8, 8), ImageOptions(mean=(0.5, 0.5)))
    with pytest.raises(UsageError, match="std is"):
        with_pixels(model(1, 3, 8, 8), ImageOptions(std=(0.0,)))
