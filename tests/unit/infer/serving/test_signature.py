"""What models take, and rows of requests that share runs."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("starlette")

from slipstream.infer.serving.refusals import RefusedError


@pytest.fixture
def four(signature):
    """A model of four rows: y = sum of x."""
    return signature({"x": (4, 3)}, {"y": (4,)})


def run(inputs):
    assert inputs["x"].shape == (4, 3)
    return {"y": inputs["x"].sum(axis=1)}


@pytest.mark.parametrize("counts", [[4], [1], [1, 1, 2], [3, 3], [8], [1, 7, 4]])
def test_requests_that_share_runs_get_their_own_rows(four, random, counts):
    given = [random.random((count, 3)).astype(np.float32) for count in counts]
    taken = [four.take({"x": each}) for each in given]
    runs = [run(inputs) for inputs in four.runs(taken)]
    assert len(runs) == -(-sum(counts) // 4)
    for outputs, each in zip(four.parted(runs, taken), given, strict=True):
        np.testing.assert_array_equal(outputs["y"], each.sum(axis=1))


def test_tensors_of_different_beginnings_have_no_rows(signature):
    model = signature({"x": (1, 3)}, {"y": (7,)})
    assert model.rows is None
    assert model.shape_of(model.inputs[0]) == [1, 3]
    taken = model.take({"x": np.zeros((1, 3), np.float32)})
    assert taken.rows == 1
    (inputs,) = model.runs([taken])
    assert inputs is taken.inputs
    with pytest.raises(RefusedError, match=r"has the shape \[2, 3\]; it has to be FP32 \[1, 3\]"):
        model.take({"x": np.zeros((2, 3), np.float32)})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "input 'x' is missing; the model has x"),
        ({"x": np.zeros((1, 3), np.float32), "z": np.zeros(1)}, "there is no input 'z'"),
        ({"x": np.zeros((1, 3))}, r"is FP64; it has to be FP32 \[-1, 3\], with 1 to 8 rows"),
        ({"x": np.zeros((9, 3), np.float32)}, r"has the shape \[9, 3\]"),
        ({"x": np.zeros((0, 3), np.float32)}, r"has the shape \[0, 3\]"),
        ({"x": np.zeros(3, np.float32)}, r"has the shape \[3\]"),
        ({"x": [memoryview(b"file")]}, "is BYTES; it has to be FP32"),
    ],
)
def test_what_a_model_does_not_take_says_what_it_does(four, given, words):
    with pytest.raises(RefusedError, match=words):
        four.take(given)


def test_inputs_have_the_same_rows(signature):
    model = signature({"a": (1, 2), "b": (1,)}, {"y": (1,)})
    with pytest.raises(RefusedError, match="different numbers of rows: a 2, b 1"):
        model.take({"a": np.zeros((2, 2), np.float32), "b": np.zeros(1, np.float32)})
