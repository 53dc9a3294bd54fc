"""What models take, and rows of requests that share runs."""

from __future__ import annotations

import io

import numpy as np
import pytest

pytest.importorskip("starlette")

from slipstream.errors import UsageError
from slipstream.serve.refusals import RequestRefusedError


@pytest.fixture
def four(signature):
    """Return a model of four rows: y = sum of x."""
    return signature({"x": (4, 3)}, {"y": (4,)})


def run(inputs):
    assert inputs["x"].shape == (4, 3)
    return {"y": inputs["x"].sum(axis=1)}


@pytest.mark.parametrize("counts", [[4], [1], [1, 1, 2], [3, 3], [8], [1, 7, 4]])
def test_requests_that_share_runs_get_their_own_rows(four, random, counts):
    given = [random.random((count, 3)).astype(np.float32) for count in counts]
    taken = [four.check({"x": each}) for each in given]
    runs = [run(inputs) for inputs in four.runs(taken)]
    assert len(runs) == -(-sum(counts) // 4)
    for outputs, each in zip(four.split(runs, taken), given, strict=True):
        np.testing.assert_array_equal(outputs["y"], each.sum(axis=1))


def test_tensors_of_different_beginnings_have_no_rows(signature):
    model = signature({"x": (1, 3)}, {"y": (7,)})
    assert model.rows is None
    assert model.shape_of(model.inputs[0]) == [1, 3]
    taken = model.check({"x": np.zeros((1, 3), np.float32)})
    assert taken.rows == 1
    (inputs,) = model.runs([taken])
    assert inputs is taken.inputs
    with pytest.raises(
        RequestRefusedError, match=r"has the shape \[2, 3\]; it has to be FP32 \[1, 3\]"
    ):
        model.check({"x": np.zeros((2, 3), np.float32)})


def test_a_dtype_that_the_protocol_lacks_is_refused_when_the_model_is_loaded():
    from slipstream.infer.package.package import Tensor
    from slipstream.serve.signature import Signature

    tensors = [Tensor(name="x", dtype="int4", shape=(1, 3))]
    with pytest.raises(UsageError, match="'x' is int4, which the Open Inference Protocol cannot"):
        Signature(tensors, tensors, 8)


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
    with pytest.raises(RequestRefusedError, match=words):
        four.check(given)


def test_inputs_have_the_same_rows(signature):
    model = signature({"a": (1, 2), "b": (1,)}, {"y": (1,)})
    with pytest.raises(RequestRefusedError, match="different numbers of rows: a 2, b 1"):
        model.check({"a": np.zeros((2, 2), np.float32), "b": np.zeros(1, np.float32)})


def test_rows_are_counted_up_to_the_most_of_a_request(four):
    assert four.rows == 4
    for rows in (1, 8):
        assert four.check({"x": np.zeros((rows, 3), np.float32)}).rows == rows
    assert four.check({"x": np.zeros((2, 3), np.float32)}).num_bytes == 24


@pytest.mark.parametrize("firsts", [((2,), (3,)), ((), ()), ((0,), (0,)), ((2,), ())])
def test_models_whose_tensors_do_not_begin_alike_have_no_rows(signature, firsts):
    model = signature({"x": firsts[0]}, {"y": firsts[1]})
    assert model.rows is None
    assert model.described(model.inputs) == [
        {"name": "x", "datatype": "FP32", "shape": list(firsts[0])}
    ]
    taken = model.check({"x": np.zeros(firsts[0], np.float32)})
    assert taken.rows == 1
    outputs = {"y": np.zeros(firsts[1], np.float32)}
    assert model.split([outputs], [taken]) == [outputs]


def test_the_last_run_is_filled_up_with_zeros(four):
    taken = [four.check({"x": np.full((rows, 3), rows, np.float32)}) for rows in (2, 3)]
    first, second = (inputs["x"][:, 0].tolist() for inputs in four.runs(taken))
    assert (first, second) == ([2, 2, 3, 3], [3, 0, 0, 0])


def test_a_request_that_fills_a_run_is_not_copied(four):
    x = np.ones((4, 3), np.float32)
    (inputs,) = four.runs([four.check({"x": x})])
    assert inputs["x"] is x
    outputs = {"y": np.ones(4, np.float32)}
    assert four.split([outputs], [four.check({"x": x})])[0] is outputs


class TestImages:
    """A model of files: x is uint8 (2, 8, 6, 3)."""

    @pytest.fixture
    def model(self):
        from slipstream.infer.package.package import Reading, Tensor
        from slipstream.serve.signature import Signature

        x, z, y = (
            Tensor(name=name, dtype=dtype, shape=shape)
            for name, dtype, shape in (
                ("x", "uint8", (2, 8, 6, 3)), ("z", "uint8", (2, 1)), ("y", "float32", (2,)),
            )
        )  # fmt: skip
        return Signature([x, z], [y], 2, Reading(input="x", size=8))

    def file(self, color=(255, 0, 0)):
        image = pytest.importorskip("PIL.Image").new("RGB", (20, 20), color)
        data = io.BytesIO()
        image.save(data, "png")
        return memoryview(data.getvalue())

    def test_files_become_rows(self, model):
        files = [self.file(), self.file((0, 255, 0))]
        taken = model.check({"x": files, "z": np.zeros((2, 1), np.uint8)})
        assert (taken.rows, taken.inputs["x"].shape) == (2, (2, 8, 6, 3))
        assert taken.inputs["x"].dtype == np.uint8
        assert [each.reshape(-1, 3)[0].tolist() for each in taken.inputs["x"]] == [
            [255, 0, 0], [0, 255, 0],
        ]  # fmt: skip

    @pytest.mark.parametrize("count", [0, 3])
    def test_files_are_as_many_as_rows_may_be(self, model, count):
        given = {"x": [self.file()] * count, "z": np.zeros((1, 1), np.uint8)}
        with pytest.raises(RequestRefusedError) as caught:
            model.check(given)
        assert str(caught.value) == (
            f"input 'x' has {count} files; it has to be UINT8 [-1, 8, 6, 3], with 1 to 2 rows for"
            " -1; or BYTES [rows], image files"
        )

    def test_a_file_that_is_none_is_named_by_its_number(self, model):
        given = {"x": [self.file(), memoryview(b"no")], "z": np.zeros((2, 1), np.uint8)}
        with pytest.raises(RequestRefusedError, match="input 'x', file 1: "):
            model.check(given)

    @pytest.mark.parametrize("size", [(8192, 8193), (20000, 9000)])
    def test_a_file_of_too_many_pixels_is_too_large(self, model, size):
        data = io.BytesIO()
        pytest.importorskip("PIL.Image").new("1", size).save(data, "gif")
        given = {"x": [memoryview(data.getvalue())], "z": np.zeros((1, 1), np.uint8)}
        with pytest.raises(
            RequestRefusedError, match=r"input 'x', file 0: .*at most 67108864"
        ) as caught:
            model.check(given)
        assert caught.value.reason.status == 413

    def test_other_inputs_take_no_files(self, model):
        given = {"x": [self.file()], "z": [self.file()]}
        with pytest.raises(RequestRefusedError) as caught:
            model.check(given)
        assert str(caught.value) == (
            "input 'z' is BYTES; it has to be UINT8 [-1, 1], with 1 to 2 rows for -1"
        )
