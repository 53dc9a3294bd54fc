"""Which numbers of an output are judged together, and what its answers are."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.infer.accuracy.accuracy import Comparison
from slipstream.infer.accuracy.yardstick import ChannelGroup, Yardstick


def yardstick(*outputs, **more):
    return Yardstick.of([{"y": each} for each in outputs], **more)


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


def softmax(logits, axis=-1):
    powers = np.exp(logits - logits.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


@pytest.fixture
def random():
    return np.random.default_rng(7)


def detections(random, classes=80, anchors=500, *, size=640.0):
    """Return boxes in pixels, and scores of classes, some of which are frequent and some rare."""
    boxes = random.uniform(0, size, (1, 4, anchors))
    often = random.permutation(np.linspace(-4, -14, classes))[:, None]
    scores = sigmoid(random.standard_normal((1, classes, anchors)) * 2 + often)
    return boxes, scores


@pytest.mark.parametrize("classes", [2, 20, 80, 600])
def test_boxes_and_scores_in_one_array_are_judged_apart(random, classes):
    """The output of YOLOv8 is such an array."""
    found = yardstick(np.concatenate(detections(random, classes), 1)).of_output("y")
    assert [group.title for group in found] == ["y[0:4]", f"y[4:{4 + classes}]"]
    assert all(group.axis == 1 for group in found)


def test_boxes_come_before_scores_along_the_last_axis_too(random):
    """The output of YOLOv5 is like this, in pixels or in shares of the image."""
    for size in (640.0, 1.0):
        boxes, scores = detections(random, 81, size=size)
        rows = np.concatenate([boxes, scores], 1).transpose(0, 2, 1)
        assert [group.title for group in yardstick(rows).of_output("y")] == ["y[0:4]", "y[4:85]"]


def test_good_boxes_do_not_hide_bad_scores(random):
    """A user reported 33 dB for the whole output, but 12 dB for the scores."""
    boxes, scores = detections(random)
    right = {"y": np.concatenate([boxes, scores], 1)}
    noise = random.standard_normal(scores.shape) * np.sqrt(np.square(scores).mean()) / 4
    found = {"y": np.concatenate([boxes * (1 + 0.02), scores + noise], 1)}
    whole, apart = Comparison(), Comparison(Yardstick.of([right]))
    for comparison in (whole, apart):
        comparison.add(found, right)
    assert whole.snr_db == pytest.approx(34, abs=0.1)
    assert apart.snr_db == pytest.approx(12, abs=0.2)
    assert apart.powers["y[0:4]"].db == pytest.approx(34, abs=0.1)


@pytest.mark.parametrize(
    "shape", [(1, 1000), (8, 10), (1, 3, 40, 40), (1, 512), (2, 77, 768), (1, 80, 300)]
)
def test_outputs_of_one_size_stay_whole(random, shape):
    arrays = [random.standard_normal(shape) * 3 for _ in range(8)]
    assert yardstick(*arrays).of_output("y") == (ChannelGroup("y"),)


def test_features_that_hardly_ever_come_up_do_not_count_by_themselves(random):
    features = np.maximum(random.standard_normal((1, 2048)), 0)
    features[0, 17] = 1e-6
    arrays = [features * random.uniform(0.5, 1.5, (1, 2048)) for _ in range(8)]
    assert yardstick(*arrays).of_output("y") == (ChannelGroup("y"),)


def test_classes_that_never_come_up_count_as_a_thousandth(random):
    scores = np.concatenate([np.full((1, 40, 300), 1e-9), np.full((1, 40, 300), 3e-3)], 1)
    assert yardstick(scores).of_output("y") == (ChannelGroup("y"),)


def test_channels_that_are_nothing_belong_to_the_smallest(random):
    channels = random.standard_normal((1, 8, 200)) * np.array([0, 0, 1, 1, 1, 50, 50, 50])[:, None]
    titles = [group.title for group in yardstick(channels).of_output("y")]
    assert titles == ["y[0:5]", "y[5:8]"]


def test_channels_apart_are_told_by_their_number(random):
    sizes = np.array([1, 90, 1, 90, 1, 90])[:, None]
    found = yardstick(random.standard_normal((1, 6, 99)) * sizes).of_output("y")
    assert [group.title for group in found] == ["y[0,2,...4]", "y[1,3,...5]"]


# ---- answers -------------------------------------------------------------------------------------


def agreement(found, right, **more):
    comparison = Comparison(yardstick(right, **more))
    comparison.add({"y": found}, {"y": right})
    return comparison.answers, comparison.same


def test_probabilities_answer_by_the_largest(random):
    for transform in (softmax, lambda x: np.log(softmax(x))):
        right = transform(random.standard_normal((6, 10)) * 3)
        found = right.copy()
        found[2] = right[2, ::-1]
        assert agreement(right, right) == (6, 6)
        assert agreement(found, right) == (6, 5)


def test_numbers_for_classes_answer_where_it_is_known_that_they_are_that(random):
    right = random.standard_normal((6, 10))
    assert agreement(right[::-1], right) == (0, 0)
    assert agreement(np.roll(right, 1, 1), right, is_classifier=True) == (6, 0)


def test_a_line_of_text_is_one_answer_whenever_its_letters_come(random):
    """Connectionist temporal classification: a letter may last for some steps."""
    letters = np.array([[0, 3, 3, 0, 5, 5], [1, 1, 2, 2, 0, 0]])
    later = np.array([[0, 0, 3, 0, 0, 5], [1, 1, 2, 2, 4, 0]])
    right, found = (softmax(9.0 * np.eye(6)[each]) for each in (letters, later))
    assert agreement(found, right) == (2, 1)


def test_every_point_of_a_map_is_an_answer(random):
    right = softmax(random.standard_normal((1, 5, 8, 8)) * 3, 1)
    found = right.copy()
    found[0, :, 0, :3] = np.roll(right[0, :, 0, :3], 1, 0)
    assert agreement(found, right) == (64, 61)


def test_integers_are_answers_and_no_signal():
    right = {"labels": np.array([[5, 3, 900]]), "scores": np.array([[0.9, 0.5, 0.1]])}
    found = {"labels": np.array([[5, 3, 1]]), "scores": right["scores"]}
    comparison = Comparison(Yardstick.of([right]))
    comparison.add(found, right)
    assert (comparison.answers, comparison.same, comparison.snr_db) == (3, 2, 200)
    only = Comparison(Yardstick.of([{"labels": right["labels"]}]))
    only.add({"labels": found["labels"]}, {"labels": right["labels"]})
    assert (only.snr_db, only.sure_db, only.agreement) == (200, 200, pytest.approx(66.7, abs=0.1))


def test_answers_of_another_shape_are_wrong():
    right = softmax(np.eye(4))
    comparison = Comparison(yardstick(right))
    comparison.add({"y": right[:3]}, {"y": right})
    assert (comparison.answers, comparison.same, comparison.snr_db) == (1, 0, -200)


def test_attention_gives_no_answers(random):
    right = softmax(random.standard_normal((1, 4, 6, 6)))
    assert agreement(right[..., ::-1], right) == (0, 0)


def test_outputs_without_channels_are_whole():
    for shape in ((), (1,), (7,)):
        assert yardstick(*[np.ones(shape)] * 8).of_output("y") == (ChannelGroup("y"),)
