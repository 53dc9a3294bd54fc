"""Outputs reduced inside of the graph, against the same in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.errors import UsageError
from slipstream.infer.engines import ENGINES, Recipe
from slipstream.infer.outputs import BoxOptions, with_boxes, with_room, with_top

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
    """Makes a network of so many pictures and classes."""

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


# ---- boxes ---------------------------------------------------------------------------------------


def overlap(a, b):
    """Intersection over union of corners."""
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    inside = np.prod(np.maximum(high - low, 0))
    return inside / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - inside)


def kept_boxes(boxes, scores, options):
    """(score, label, box) of one picture: greedy, class by class."""
    found = []
    for label in range(scores.shape[1]):
        chosen = []
        for at in np.argsort(-scores[:, label], kind="stable"):
            if scores[at, label] <= options.score or len(chosen) == options.most:
                break
            if all(overlap(boxes[at], boxes[other]) <= options.iou for other in chosen):
                chosen.append(at)
        found += [(scores[at, label], label, boxes[at]) for at in chosen]
    return sorted(found, key=lambda item: -item[0])[: options.most]


def scene(random, batch, number, classes):
    """Rows of centre, size, objectness and classes; many overlap."""
    centre = random.uniform(10, 60, (batch, number, 2))
    size = random.uniform(8, 30, (batch, number, 2))
    rest = random.uniform(0, 1, (batch, number, 1 + classes)) ** 2
    return np.concatenate([centre, size, rest], axis=2).astype(np.float32)


def corners(rows):
    centre, half = rows[..., :2], rows[..., 2:4] * np.float32(0.5)
    return np.concatenate([centre - half, centre + half], axis=-1)


def compare(found, boxes, scores, options):
    for at in range(len(boxes)):
        right = kept_boxes(boxes[at], scores[at], options)
        count = len(right)
        assert found["counts"][at] == count
        np.testing.assert_allclose(found["scores"][at][:count], [item[0] for item in right])
        assert found["labels"][at][:count].tolist() == [item[1] for item in right]
        expected = np.array([item[2] for item in right]).reshape(-1, 4)
        np.testing.assert_allclose(found["boxes"][at][:count], expected, 1e-5)
        assert not found["scores"][at][count:].any()
        assert not found["boxes"][at][count:].any()
        assert (found["labels"][at][count:] == -1).all()


OPTIONS = [
    BoxOptions(),
    BoxOptions(iou=0.2, score=0.5, most=7),
    BoxOptions(iou=0.9, score=0.0, most=300),
]


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("batch", "number", "classes"), [(1, 40, 3), (2, 25, 1)])
def test_overlapping_boxes_are_left_out(build, random, name, options, batch, number, classes):
    shape = f"float[{batch},{number},{5 + classes}]"
    graph = with_boxes(build(f"({shape} x) => ({shape} rows) {{ rows = Identity(x) }}"), options)
    rows = scene(random, batch, number, classes)
    found = run(graph, name, {"x": rows})
    assert [found[key].shape for key in ("boxes", "scores", "labels", "counts")] == [
        (batch, options.most, 4),
        (batch, options.most),
        (batch, options.most),
        (batch,),
    ]
    compare(found, corners(rows), rows[..., 5:] * rows[..., 4:5], options)


@pytest.mark.parametrize("is_last", [True, False])
def test_boxes_and_scores_may_be_two_outputs(build, random, is_last):
    scores = "float[1,30,2]" if is_last else "float[1,2,30]"
    graph = build(
        f"(float[1,30,4] a, {scores} b) => (float[1,30,4] boxes, {scores} scores)"
        " { boxes = Identity(a) scores = Identity(b) }"
    )
    rows = scene(random, 1, 30, 2)
    given = rows[..., 5:] if is_last else rows[..., 5:].transpose(0, 2, 1)
    feeds = {"a": corners(rows), "b": np.ascontiguousarray(given)}
    options = BoxOptions(score=0.3)
    compare(
        run(with_boxes(graph, options), "onnxruntime", feeds), feeds["a"], rows[..., 5:], options
    )


def test_a_picture_without_boxes_has_none(build):
    text = "(float[1,6,7] x) => (float[1,6,7] rows) { rows = Identity(x) }"
    found = run(
        with_boxes(build(text), BoxOptions(most=4)), "onnxruntime", {"x": np.zeros((1, 6, 7), "f4")}
    )
    assert (found["counts"].tolist(), found["labels"].tolist()) == ([0], [[-1] * 4])


def test_our_kernels_leave_boxes_to_others(build, random):
    graph = build(
        """(float[1,16,4,4] x) => (float[1,16,7] rows) {
            a = Conv(x, w) r = Reshape(a, s) t = Transpose <perm=[0,2,1]> (r) rows = Sigmoid(t)
        }""",
        w=random.standard_normal((7, 16, 1, 1)),
        s=np.array([1, 7, 16]),
    )
    graph = with_boxes(graph, BoxOptions(score=0.3))
    feeds = {"x": random.standard_normal((1, 16, 4, 4)).astype(np.float32)}
    found, right = run(graph, "native", feeds), run(graph, "onnxruntime", feeds)
    for name in graph.outputs:
        np.testing.assert_allclose(found[name], right[name], atol=1e-4)
    assert right["counts"][0] > 2


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("(float[1,6] x) => (float[1,6] y) { y = Relu(x) }", BoxOptions(), r"y float32 \(1, 6\)"),
        ("(float[1,6,5] x) => (float[1,6,5] y) { y = Relu(x) }", BoxOptions(), "5 \\+ classes"),
        ("(float[1,6,7] x) => (float[1,6,7] y) { y = Relu(x) }", BoxOptions(iou=2), "iou=2"),
        ("(float[1,6,7] x) => (float[1,6,7] y) { y = Relu(x) }", BoxOptions(most=0), "most=0"),
    ],
)
def test_what_is_no_boxes_is_described(build, text, options, message):
    with pytest.raises(UsageError, match=message):
        with_boxes(build(text), options)


def test_values_inside_keep_the_names_that_a_recipe_has(build, random, tmp_path):
    """An inner value was renamed after the search, and ranges and ends named what it was before."""
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
