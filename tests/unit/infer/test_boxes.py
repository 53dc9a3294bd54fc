"""A detector's boxes, reduced inside of the graph, against the same in NumPy; how they are read."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream import infer
from slipstream.errors import UsageError
from slipstream.infer.engines import ENGINES, Recipe
from slipstream.infer.graph.onnx_file import to_model
from slipstream.infer.outputs.box_layouts import LAYOUTS, detect_layout
from slipstream.infer.outputs.boxes import BoxOptions, shapes_of, with_boxes
from slipstream.infer.outputs.outputs import describe_outputs


def run(graph, name, feeds):
    recipe = Recipe(engine=name, rewrites=True)
    executable = ENGINES[name].prepare(graph, recipe, 1)
    try:
        return executable.run(feeds)
    finally:
        executable.close()


# ---- boxes ---------------------------------------------------------------------------------------


def overlap(a, b):
    """Intersection over union of corners."""
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    inside = np.prod(np.maximum(high - low, 0))
    return inside / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - inside)


def kept_boxes(boxes, scores, options):
    """(score, label, box) of one image: greedy, class by class."""
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
    """Return rows of centre, size, objectness and classes, many of which overlap."""
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
    BoxOptions(iou=0.2, score=0.0, most=90),
    BoxOptions(iou=0.9, score=0.0, most=300, layout="yolov5"),
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


def test_an_image_without_boxes_has_none(build):
    text = "(float[1,8,7] x) => (float[1,8,7] rows) { rows = Identity(x) }"
    found = run(
        with_boxes(build(text), BoxOptions(most=4)), "onnxruntime", {"x": np.zeros((1, 8, 7), "f4")}
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
        ("(float[1,6,4] x) => (float[1,6,4] y) { y = Relu(x) }", BoxOptions(), "5 \\+ classes"),
        (
            "(float[1,6,7] x) => (float[1,6,7] y) { y = Relu(x) }",
            BoxOptions(layout="v9"),
            "'v9'; allowed: auto, y",
        ),
        (
            "(float[1,6,7] x) => (float[1,6,7] y) { y = Relu(x) }",
            BoxOptions(layout="ssd"),
            "ssd needs boxes",
        ),
        ("(float[1,6,7] x) => (float[1,6,7] y) { y = Relu(x) }", BoxOptions(iou=2), "iou=2"),
        ("(float[1,6,7] x) => (float[1,6,7] y) { y = Relu(x) }", BoxOptions(most=0), "most=0"),
    ],
)
def test_what_is_no_boxes_is_described(build, text, options, message):
    with pytest.raises(UsageError, match=message):
        with_boxes(build(text), options)


# ---- layouts -------------------------------------------------------------------------------------


def softmax(logits):
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def passed(build, *shapes):
    """Return a graph whose outputs are its inputs."""
    names = "abc"[: len(shapes)]
    spelled = [",".join(map(str, shape)) for shape in shapes]
    inputs = ", ".join(f"float[{s}] {n}" for n, s in zip(names, spelled, strict=True))
    outputs = ", ".join(f"float[{s}] {n}_" for n, s in zip(names, spelled, strict=True))
    return build(
        f"({inputs}) => ({outputs}) {{ {' '.join(f'{n}_ = Identity({n})' for n in names)} }}"
    )


def feeds_of(arrays):
    return {
        name: np.ascontiguousarray(array.astype(np.float32))
        for name, array in zip("abc", arrays, strict=False)
    }


def found_by(build, arrays, options):
    """Return the boxes of a model's output, whose layout is found from the output."""
    graph, feeds = passed(build, *(each.shape for each in arrays)), feeds_of(arrays)
    examples = [run(graph, "onnxruntime", feeds)]
    layout = detect_layout(options.layout, shapes_of(graph), describe_outputs(graph), examples)
    settled = BoxOptions(
        iou=options.iou, score=options.score, most=options.most, layout=layout.name
    )
    return layout.name, run(with_boxes(graph, settled), "onnxruntime", feeds)


def given_as(layout, rows):
    """Return rows of box, objectness and classes in the layout of a model, and the scores."""
    boxes, scores = rows[..., :4], rows[..., 5:]
    logits = np.log(scores) - np.log1p(-scores)
    if layout == "yolov5":
        return [rows], scores * rows[..., 4:5]
    if layout == "yolov8":
        return [np.concatenate([boxes, scores], 2).transpose(0, 2, 1)], scores
    if layout == "ssd":
        return [corners(rows), scores], scores
    boxes = boxes / 100
    if layout == "rt-detr":
        return [logits, boxes], scores
    none = np.full((*scores.shape[:2], 1), 3.0)
    none[:, :5] = -3
    whole = np.concatenate([logits, none], 2)
    return [whole, boxes], softmax(whole)[..., :-1]


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_boxes_are_read_as_the_model_gives_them(build, random, layout, batch):
    rows = scene(random, batch, 40, 6)
    rows[..., 5:] = np.clip(rows[..., 5:], 1e-4, 1 - 1e-4)
    given, scores = given_as(layout, rows)
    options = BoxOptions(score=0.3, layout="rt-detr" if layout == "rt-detr" else "auto")
    name, found = found_by(build, given, options)
    scale = 0.01 if layout.endswith("detr") else 1
    assert name == layout
    assert found["counts"].min() > 3
    right = [kept_boxes(corners(rows)[at] * scale, scores[at], options) for at in range(batch)]
    for at, boxes in enumerate(right):
        count = found["counts"][at]
        assert count == len(boxes)
        assert found["labels"][at][:count].tolist() == [label for _, label, _ in boxes]
        expected = [score for score, _, _ in boxes]
        np.testing.assert_allclose(found["scores"][at][:count], expected, 1e-4)
        np.testing.assert_allclose(found["boxes"][at][:count], [box for *_, box in boxes], 1e-3)


def test_a_layout_that_is_named_is_read_transposed_too(build, random):
    """Rows of YOLOv8 that an exporter has transposed look like those of YOLOv5."""
    rows = scene(random, 1, 40, 6)
    whole = np.concatenate([rows[..., :4], rows[..., 5:]], 2)
    options = BoxOptions(score=0.3, layout="yolov8")
    name, found = found_by(build, [whole], options)
    assert name == "yolov8"
    compare(found, corners(rows), rows[..., 5:], options)


def test_pixels_that_were_read_as_scores_are_none(build, random):
    """A user reported that (1, 4 + classes, boxes), read as boxes in rows, had scores of
    23,947.
    """
    rows = scene(random, 1, 40, 6)
    whole = np.concatenate([rows[..., :4] * 9, rows[..., 5:]], 2).transpose(0, 2, 1)
    name, found = found_by(build, [whole], BoxOptions(score=0.3))
    assert name == "yolov8"
    assert found["counts"][0] > 3
    assert found["scores"].max() <= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows * 8, "as yolov5 .* its scores are .*; perhaps they lack a sigmoid"),
        (lambda rows: rows[..., :6] * [1, 1, 1, 1, 1, 40], "end in a class are selected already"),
        (lambda rows: rows - [0, 0, 0, 0, 0, 0.5, *[0] * 5], "are -0.4998 to"),
        (lambda rows: rows * np.nan, "its scores are nan to nan"),
    ],
)
def test_scores_that_are_no_probabilities_are_refused(build, random, change, message):
    with pytest.raises(UsageError, match=message):
        found_by(build, [change(scene(random, 1, 40, 6))], BoxOptions())


def test_logits_that_may_be_of_two_kinds_are_asked_about(build, random):
    given, _ = given_as("rt-detr", np.clip(scene(random, 1, 40, 6), 1e-3, 0.999))
    with pytest.raises(UsageError, match=r"do not tell .* say layout=detr .* or layout=rt-detr"):
        found_by(build, given, BoxOptions())
    assert found_by(build, given, BoxOptions(layout="detr"))[0] == "detr"


def test_a_detector_of_one_class_of_logits_has_no_class_of_nothing(build, random):
    """It was once read like the output of DETR, in which nothing was found."""
    rows = np.clip(scene(random, 1, 40, 1), 1e-3, 0.999)
    given, _ = given_as("rt-detr", rows)
    with pytest.raises(UsageError, match=r"do not tell .* say layout=rt-detr"):
        found_by(build, given, BoxOptions())
    with pytest.raises(UsageError, match="detr needs boxes"):
        found_by(build, given, BoxOptions(layout="detr"))


def test_what_a_model_gives_decides_before_the_search(build, random, tmp_path):
    rows = scene(random, 4, 40, 6)
    graph = passed(build, (1, 10, 40))
    data = [np.concatenate([row[:, :4], row[:, 5:]], 1).T for row in rows]
    report = infer.compile(
        to_model(graph).SerializeToString(), tmp_path / "m.slip",
        infer.CompileOptions(data=data, threads=1, boxes=infer.BoxOptions(score=0.3), seconds=1,
                             engines=("onnxruntime",)),
    )  # fmt: skip
    assert "boxes are read in the layout yolov8: (n, 4 + classes" in report.notes[0]
    with infer.load(tmp_path / "m.slip") as model:
        found = model(data[0][None].astype(np.float32))
    compare(found, corners(rows[:1]), rows[:1, :, 5:], BoxOptions(score=0.3))
    with pytest.raises(UsageError, match="are no boxes and scores between 0 and 1"):
        infer.compile(
            to_model(graph).SerializeToString(), tmp_path / "m.slip",
            infer.CompileOptions(threads=1, boxes=infer.BoxOptions(), data=[9 * x for x in data]),
        )  # fmt: skip
