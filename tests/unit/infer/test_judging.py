"""Candidates of bytes win only where samples and time tell how good they are."""

from __future__ import annotations

import re

import numpy as np
import pytest

from slipstream.errors import UsageError
from slipstream.infer.accuracy.accuracy import ENOUGH, Comparison, Powers
from slipstream.infer.accuracy.division import LEAST, Division
from slipstream.infer.accuracy.promise import Accuracy, accuracy_of, chance_note
from slipstream.infer.data import load_data
from slipstream.infer.engines import FLOATS
from slipstream.infer.importers import Imported
from slipstream.infer.package.report import State
from slipstream.infer.search.objective import Objective
from slipstream.infer.search.search import search


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(11).standard_normal((64, 3, 8, 8)).astype(np.float32)


def goal(**more):
    return Objective(**{"seconds": 60, "most_rounds": 5, "engines": ("native",), **more})


def found_by(net, images, **more):
    return search(Imported(net, None, "the net"), goal(**more), load_data(list(images), net))


def precisions(found):
    return {item.precision for item in found.candidates}


# ---- samples -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 7, LEAST - 1])
def test_too_few_samples_to_judge_bytes_leave_it_in_floating_point(net, images, count):
    """A user reported that bytes were chosen because of one sample."""
    found = found_by(net, images[:count])
    assert precisions(found) <= set(FLOATS)
    assert found.notes[0].startswith(
        f"the model stays in floating point: there are {count} samples, and"
    )
    assert "needs 16" in found.notes[0]
    assert found.accuracy.data == f"{count} sample{'s' * (count > 1)}, all of which judged"
    assert (found.accuracy.sure_db is None) == (count < ENOUGH)


def test_enough_samples_are_divided_and_the_held_out_ones_give_the_figure(net, images):
    found = found_by(net, images[:LEAST], target="memory")  # it is not the speed that decides
    assert found.recipe.precision == "int8"
    assert found.comparison.samples == ENOUGH
    assert found.accuracy.data == "4 samples held out; 8 others judged, 4 calibrated"
    assert found.accuracy.sure_db < found.accuracy.snr_db


@pytest.mark.parametrize("count", [16, 40, 256, 1000])
def test_no_sample_has_two_tasks(images, count):
    divided = Division.of(load_data([np.float32([n])[None] for n in range(count)], _Graph()))
    parts = divided.calibration, divided.judged, divided.held_out
    numbers = [set(part.indices) for part in parts]
    assert set.union(*numbers) == set(range(count))
    assert sum(map(len, numbers)) == count
    assert len(divided.calibration) == min(count // 4, 64)
    assert len(divided.held_out) == count // 4
    assert [int(part[0].inputs["x"][0, 0]) for part in parts] == [part.indices[0] for part in parts]
    # Each of them has samples of all the data: the middle of the numbers is about the same.
    for part in parts:
        assert abs(np.mean(part.indices) - count / 2) < count / 4


class _Graph:
    """What `load_data` asks of a graph: one input of one number."""

    def __init__(self):
        from slipstream.infer.graph.graph import Value

        self.inputs = {"x": Value(np.dtype(np.float32), (1, 1))}


# ---- time ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slow(build):
    random = np.random.default_rng(1)
    return build(
        """(float[256,1024] x) => (float[256,1024] y) {
            a = MatMul(x, w) r = Relu(a) y = MatMul(r, w)
        }""",
        w=random.standard_normal((1024, 1024)).astype(np.float32) / 32,
    )


def test_too_little_time_to_judge_bytes_leaves_it_in_floating_point(slow):
    rows = np.random.default_rng(2).standard_normal((32, 256, 1024)).astype(np.float32)
    found = found_by(slow, rows, seconds=0.1)
    assert precisions(found) <= set(FLOATS)
    (note,) = (note for note in found.notes if "int8 takes about" in note)
    assert re.search(
        r"to judge on 8 samples, and 0 s are left for it; --search-time \d+0s gives", note
    )


def test_what_there_is_no_time_to_judge_is_not_tried(slow):
    rows = np.random.default_rng(2).standard_normal((32, 256, 1024)).astype(np.float32)
    found = found_by(slow, rows, seconds=0.05, engines=("onnxruntime", "openvino", "native"))
    assert found.recipe.precision == "fp32"
    reasons = {item.reason for item in found.candidates if item.state is State.UNTRIED}
    assert any(reason.startswith("no time was left to ") for reason in reasons)


# ---- samples held out ----------------------------------------------------------------------------


def test_what_is_worse_on_samples_held_out_is_not_chosen(net, images):
    """The other samples have values a hundred times as large, which set the ranges of bytes."""
    held_out = Division.of(load_data(list(images), net)).held_out.indices
    strange = images.copy()
    strange[list(held_out)] *= 100
    found = found_by(net, strange, target="memory")
    (bytes_,) = (item for item in found.candidates if item.precision == "int8")
    assert bytes_.state is State.REJECTED
    assert bytes_.reason.startswith("on 16 samples held out, ")
    assert bytes_.snr_db > 20
    assert found.recipe.precision in FLOATS
    assert found.accuracy.snr_db > 30


# ---- the promise in words ------------------------------------------------------------------------


def comparison(samples=16, noise=1e-3, **more):
    powers = {"y": Powers([1.0] * samples, [noise] * samples)}
    return Comparison(powers=powers, samples=samples, **more)


def test_the_promise_says_what_it_rests_on():
    labels = {"labelled": 16, "right": 12, "reference_right": 14, "changed": 2}
    found = accuracy_of(comparison(), comparison(8, 1e-4, **labels), 5, is_real=True)
    assert found.data == "8 samples with 16 labels held out; 16 others judged, 5 calibrated"
    assert found.words.startswith("40.0 dB signal-to-noise ratio (")
    assert found.words.endswith("95 % sure); top-1 75.00 %, 87.50 % in float32")
    assert found.sure_db < 32


def test_each_output_is_told_where_there_are_several():
    judged = comparison(1, 1e-2)
    judged.powers["z"] = Powers([1.0], [0.0])
    judged.answers, judged.same = 40, 39
    words = "20.0 dB signal-to-noise ratio; by group: y 20.0 dB, z equal; 97.5 % of the answers"
    assert accuracy_of(judged, None, 0, is_real=True).words.startswith(words)


def test_a_promise_of_an_older_package_is_read():
    old = {"snr_db": 40.0, "top1_loss": None, "samples": 9, "labelled": 0, "data": "9 of mine"}
    assert Accuracy.model_validate(old).words == "40.0 dB signal-to-noise ratio"


@pytest.mark.parametrize(
    ("right", "classes", "is_warned"),
    [(2, 10, True), (10, 10, True), (17, 10, False), (58, 2, True), (70, 2, False), (0, 1, False)],
)
def test_a_model_that_is_no_better_than_chance_is_warned_of(right, classes, is_warned):
    judged = comparison(labelled=100, reference_right=right, classes=set(range(classes)))
    note = chance_note(judged)
    assert bool(note) == is_warned
    if is_warned:
        assert note.startswith(f"the model in float32 is right in {right} of 100 answers, and")


def test_a_wrong_order_of_labels_is_warned_of(net, images):
    random = np.random.default_rng(3)
    data = [(image, int(random.integers(5))) for image in images]
    found = search(Imported(net, None, "the net"), goal(), load_data(data, net))
    assert any("check that the labels are the numbers" in note for note in found.notes)


# ---- what no model or data may do ----------------------------------------------------------------


def test_a_model_whose_only_input_reads_bytes_is_calibrated(build):
    """Nothing inside of it had to be observed, and nothing was run."""
    random = np.random.default_rng(1)
    text = "(float[1,64] x) => (float[1,64] y) { y = MatMul(x, w) }"
    graph = build(text, w=random.standard_normal((64, 64)).astype(np.float32))
    rows = list(random.standard_normal((40, 1, 64)).astype(np.float32))
    found = search(Imported(graph, None, "it"), goal(engines=()), load_data(rows, graph))
    assert "int8" in precisions(found)


@pytest.mark.parametrize("label", [-1, 5, 99, 2**40])
def test_labels_that_are_no_class_are_refused(net, images, label):
    data = [(image, label if number == 3 else 0) for number, image in enumerate(images)]
    with pytest.raises(UsageError, match=r"a label is .*; the output logits \(1, 5\) has"):
        search(Imported(net, None, "it"), goal(), load_data(data, net))


def test_labels_of_what_tells_nothing_apart_are_refused(build):
    graph = build("(float[1,4] x) => (float[1,1] y) { y = ReduceSum <keepdims=1> (x, a) }", a=[1])
    data = [(np.ones((1, 4), np.float32), 0)] * 20
    with pytest.raises(UsageError, match=r"the output y \(1, 1\) has no classes to tell apart"):
        search(Imported(graph, None, "it"), goal(), load_data(data, graph))


@pytest.mark.parametrize(
    "limits", [{"snr_db": np.nan}, {"snr_db": np.inf}, {"budget": np.nan}, {"agreement": 200.0}]
)
def test_limits_that_are_none_are_refused(limits):
    with pytest.raises(UsageError, match=r"; allowed: (a number|0 to 100)"):
        Objective(**limits)
