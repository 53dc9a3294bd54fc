"""Tensors as bytes, numbers and strings, as the protocol has them."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("starlette")

from tritonclient.utils import np_to_triton_dtype, serialize_byte_tensor

from slipstream.serve.protocol.datatypes import (
    array_of,
    array_of_numbers,
    byte_strings,
    datatype_of,
)
from slipstream.serve.refusals import Reason, RequestRefusedError

DTYPES = (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16",
    "float32", "float64",
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_names_and_bytes_are_those_of_the_usual_client(random, dtype):
    array = (random.integers(0, 100, (2, 3)) > 50 if dtype == "bool" else
             random.integers(0, 100, (2, 3))).astype(dtype)  # fmt: skip
    assert datatype_of(dtype) == np_to_triton_dtype(np.dtype(dtype))
    found = array_of(memoryview(array.tobytes()), datatype_of(dtype), [2, 3], "x")
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype


@pytest.mark.parametrize("dtype", [each for each in DTYPES if each != "float16"])
@pytest.mark.parametrize("nested", [False, True])
def test_numbers_of_json_become_the_datatype(random, dtype, nested):
    array = (random.integers(0, 100, (2, 3))).astype(dtype)
    data = json.loads(json.dumps((array if nested else array.reshape(-1)).tolist()))
    found = array_of_numbers(data, datatype_of(dtype), [2, 3], "x")
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype


def test_bfloat16_is_sent_as_bytes_and_as_numbers(random):
    array = random.standard_normal((2, 3)).astype("bfloat16")
    assert datatype_of("bfloat16") == "BF16"
    found = array_of(memoryview(array.tobytes()), "BF16", [2, 3], "x")
    numbers = array_of_numbers(array.astype(np.float32).tolist(), "BF16", [2, 3], "x")
    for each in (found, numbers):
        assert each.dtype == array.dtype
        np.testing.assert_array_equal(each.view("u2"), array.view("u2"))


def test_integers_are_numbers_of_fractions_too():
    found = array_of_numbers([1, 2], "FP32", [2], "x")
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    ("data", "datatype", "shape", "words"),
    [
        ([1, 2, 3], "FP32", [2], "has 3 numbers; the shape \\[2\\] needs 2"),
        ([1, "a"], "FP32", [2], "data are strings; FP32 is needed"),
        ([[1], [1, 2]], "FP32", [3], "equal length"),
        ([0.5], "INT32", [1], "data are fractions; INT32 is needed"),
        ([300], "UINT8", [1], "beyond the range of UINT8"),
        ([-1], "UINT8", [1], "beyond the range of UINT8"),
        ([2**70], "INT64", [1], "data are objects"),
        ([True], "FP32", [1], "data are booleans"),
        ([1], "BOOL", [1], "BOOL is needed"),
        ([None], "INT64", [1], "data are objects"),
        ({"a": 1}, "FP32", [1], "data are objects"),
        ([1], "FLOAT", [1], "allowed: BOOL, UINT8"),
    ],
)
def test_other_data_are_refused(data, datatype, shape, words):
    with pytest.raises(RequestRefusedError, match=words) as caught:
        array_of_numbers(data, datatype, shape, "x")
    assert caught.value.reason is Reason.INVALID


@pytest.mark.parametrize("length", [0, 7, 9])
def test_bytes_have_to_be_as_many_as_the_shape_needs(length):
    with pytest.raises(
        RequestRefusedError, match=f"has {length} bytes; FP32 of the shape .1, 2. has 8"
    ):
        array_of(memoryview(bytes(length)), "FP32", [1, 2], "x")


def test_strings_are_those_of_the_usual_client():
    strings = [b"", b"one", b"\x00\xff" * 1000]
    raw = serialize_byte_tensor(np.array(strings, dtype=object)).item()
    found = byte_strings(memoryview(raw), [3], "x")
    assert [bytes(each) for each in found] == strings


def test_damaged_strings_are_refused_and_nothing_else(random):
    whole = serialize_byte_tensor(np.array([b"one", b"three"], dtype=object)).item()
    for _ in range(2000):
        raw = bytearray(whole[: random.integers(len(whole) + 1)])
        for place in random.integers(len(raw), size=2) if raw else ():
            raw[place] = random.integers(256)
        try:
            found = byte_strings(memoryview(bytes(raw)), [2], "x")
        except RequestRefusedError:
            continue
        assert len(found) == 2


@pytest.mark.parametrize("dtype", [each for each in DTYPES if "int" in each])
def test_integers_reach_to_both_ends_of_their_range_and_no_further(dtype):
    ends = np.iinfo(dtype)
    datatype = datatype_of(dtype)
    for end in (ends.min, ends.max):
        assert array_of_numbers([end], datatype, [1], "x").tolist() == [end]
    for beyond in (ends.min - 1, ends.max + 1):
        with pytest.raises(
            RequestRefusedError, match=rf"beyond the range of {datatype}$|data are "
        ):
            array_of_numbers([beyond], datatype, [1], "x")


def test_fractions_beyond_the_range_are_infinite():
    found = array_of_numbers([1e39, -1e39, 3e38], "FP32", [3], "x")
    assert found.tolist() == [np.inf, -np.inf, np.float32(3e38)]


@pytest.mark.parametrize("datatype", ["BOOL", "INT8", "FP64"])
def test_a_tensor_may_be_empty(datatype):
    assert array_of_numbers([], datatype, [0, 3], "x").shape == (0, 3)
    assert array_of(memoryview(b""), datatype, [2, 0], "x").shape == (2, 0)
    assert byte_strings(memoryview(b""), [0], "x") == []
    with pytest.raises(RequestRefusedError, match=r"has 0 numbers; the shape \[1\] needs 1"):
        array_of_numbers([], datatype, [1], "x")


@pytest.mark.parametrize(
    ("raw", "shape", "words"),
    [
        (b"\1\0\0", [1], "the length of element 0 is cut off"),
        (b"\1\0\0\0a\0\0\0", [2], "the length of element 1 is cut off"),
        (b"\1\0\0\0", [1], "element 0 ends beyond the end"),
        (b"\1\0\0\0a\2\0\0\0b", [2], "element 1 ends beyond the end"),
        (b"\0\0\0\0" * 5, [2, 2], r"has 5 elements; the shape \[2, 2\] needs 4"),
        (b"\0\0\0\0", [], None),
        (b"\0\0\0\0" * 6, [2, 3], None),
        (b"\0\1\0\0" + bytes(256), [1], None),
    ],
)  # fmt: skip
def test_lengths_of_strings_are_checked_at_their_ends(raw, shape, words):
    if words is None:
        assert b"".join(byte_strings(memoryview(raw), shape, "x")) == bytes(256 if raw[1] else 0)
        return
    with pytest.raises(RequestRefusedError, match=words):
        byte_strings(memoryview(raw), shape, "x")


def test_a_datatype_that_is_none_is_told_with_all_that_are():
    with pytest.raises(RequestRefusedError) as caught:
        array_of(memoryview(b""), "F" * 33, [0], "x")
    assert str(caught.value) == (
        f"input 'x' is {'F' * 32!r}; allowed: BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16,"
        " INT32, INT64, FP16, FP32, FP64, BF16, BYTES"
    )


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
@pytest.mark.parametrize("data", [[1.5, None, 3], [[1.5], [None], [3]], [None, None, None]])
def test_null_is_nan_as_it_is_in_answers(datatype, data):
    found = array_of_numbers(data, datatype, [3], "x")
    flat = [each[0] if isinstance(each, list) else each for each in data]
    np.testing.assert_array_equal(found, [np.nan if each is None else each for each in flat])
    assert found.dtype.kind == "f"


@pytest.mark.parametrize(
    ("data", "datatype"),
    [([1, None], "INT32"), ([True, None], "BOOL"), ([1.0, "a"], "FP32"), ([None, "a"], "FP32")],
)
def test_null_is_no_integer_and_text_no_number(data, datatype):
    with pytest.raises(RequestRefusedError, match="is needed"):
        array_of_numbers(data, datatype, [2], "x")
