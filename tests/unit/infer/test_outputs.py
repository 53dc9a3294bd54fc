"""Outputs reduced inside of the graph, against the same in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.errors import UsageError
from slipstream.infer.engines import ENGINES, Recipe
from slipstream.infer.outputs.outputs import with_room, with_top

ENGINE_NAMES = ["onnxruntime", "openvino", "native"]


def run(graph, name, feeds):
    recipe = Recipe(engine=name, rewrites=True)
    executable = ENGINES[name].prepare(graph, recipe, 1)
    try:
        return executable.run(feeds)
    finally:
        executable.close()


# ---- classes -------------------------------------------------------------------------------------


@pytest.fixture
def classifier(build, random):
    """Return a function that makes a network of a number of images and classes."""

    def make(batch, classes, output="logits"):
        text = f"(float[{batch},16] x) => (float[{batch},{classes}] {output}) {{"
        text += f" {output} = Gemm(x, w, b) }}"
        weights = random.standard_normal((16, classes))
        return build(text, w=weights, b=random.standard_normal(classes))

    return make


@pytest.mark.parametrize("name", ENGINE_NAMES)
@pytest.mark.parametrize(("batch", "classes", "top"), [(1, 1000, 5), (3, 7, 7), (2, 10, 1)])
def test_the_highest_scores_come_first(classifier, random, name, batch, classes, top):
    graph = classifier(batch, classes)
    feeds = {"x": random.standard_normal((batch, 16)).astype(np.float32)}
    logits = run(graph, name, feeds)["logits"]
    found = run(with_top(graph, top), name, feeds)
    order = np.argsort(-logits, axis=1)[:, :top]
    assert {key: array.dtype for key, array in found.items()} == {
        "labels": np.int64,
        "scores": np.float32,
    }
    np.testing.assert_array_equal(found["labels"], order)
    np.testing.assert_array_equal(found["scores"], np.take_along_axis(logits, order, axis=1))


def test_an_output_that_is_called_so_makes_room(classifier, random):
    graph = with_top(classifier(1, 9, "scores"), 3)
    assert graph.outputs == ["labels", "scores"]
    feeds = {"x": random.standard_normal((1, 16)).astype(np.float32)}
    assert run(graph, "onnxruntime", feeds)["scores"].shape == (1, 3)


@pytest.mark.parametrize("top", [0, 10])
def test_there_are_as_many_as_classes(classifier, top):
    with pytest.raises(UsageError, match=rf"top is {top}; allowed: 1 to 9"):
        with_top(classifier(1, 9), top)


def test_outputs_that_are_no_scores_are_described(build):
    graph = build("(float[1,2,3] x) => (float[1,2,3] y) { y = Relu(x) }")
    with pytest.raises(UsageError, match=r"y float32 \(1, 2, 3\)"):
        with_top(graph, 1)


def test_values_inside_keep_the_names_that_a_recipe_has(build, random, tmp_path):
    """An inner value was once renamed after the search, although the recipe had its old name."""
    graph = build(
        """(float[1,3,8,8] x) => (float[1,16] y) {
            scores = Conv <pads=[1,1,1,1]> (x, w) r = Relu(scores) labels = GlobalAveragePool(r)
            y = Flatten(labels)
        }""",
        w=random.standard_normal((16, 3, 3, 3)),
    )
    given = with_room(graph)
    assert {"scores", "labels"}.isdisjoint(given.producers())
    reduced = with_top(given, 3)
    inner = {name for node in given.nodes for name in node.outputs}
    assert inner <= {name for node in reduced.nodes for name in node.outputs}
