"""Which objects are arrays to the engine, and what is said about those that are not."""

import array
from typing import Any

import numpy as np
import pytest

from slipstream import _core
from slipstream.comm.arrays import empty, output_view, view
from slipstream.errors import UsageError


@pytest.mark.parametrize(
    ("buffer", "dtype", "shape"),
    [
        (np.zeros((2, 3), dtype=np.float16), _core.DType.FLOAT16, (2, 3)),
        (np.zeros((), dtype=np.int64), _core.DType.INT64, ()),
        (np.zeros((0, 4), dtype=bool), _core.DType.BOOL, (0, 4)),
        (np.zeros(5, dtype=np.complex64), _core.DType.COMPLEX64, (5,)),
        (array.array("d", [1.0, 2.0]), _core.DType.FLOAT64, (2,)),
        (bytearray(7), _core.DType.UINT8, (7,)),
        (memoryview(bytearray(7)), _core.DType.UINT8, (7,)),
    ],
)
def test_whatever_has_the_buffer_protocol_is_an_array(
    buffer: Any, dtype: _core.DType, shape: tuple[int, ...]
) -> None:
    seen = view(buffer)
    assert (seen.dtype, seen.shape) == (dtype, shape)
    assert seen.elements == np.prod(shape)
    assert seen.writable


def test_a_tensor_is_an_array_through_dlpack() -> None:
    torch = pytest.importorskip("torch")
    for name, dtype in (("bfloat16", _core.DType.BFLOAT16), ("int32", _core.DType.INT32)):
        tensor = torch.ones(2, 5, dtype=getattr(torch, name))
        seen = view(tensor)
        assert (seen.address, seen.dtype, seen.shape) == (tensor.data_ptr(), dtype, (2, 5))


def test_what_only_looks_at_the_memory_may_not_write_to_it() -> None:
    assert not view(b"constant").writable
    with pytest.raises(UsageError, match="reduce: the output is read-only"):
        output_view(b"constant", 8, _core.DType.UINT8, "reduce")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ([1.0], "got list"),
        (np.zeros((3, 3))[:, 0], "not contiguous"),
        (np.zeros((3, 3), order="F"), "not contiguous"),
        (np.zeros(3, dtype=">f4"), "elements of type >f4"),
        (np.zeros(3, dtype="U4"), "elements of type <U4"),
        (np.zeros(3, dtype="M8[s]"), r"elements of type datetime64\[s\]"),
        (np.zeros(3, dtype=np.longdouble), "16 bytes each; allowed"),
    ],
)
def test_what_is_no_array_is_described(wrong: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        view(wrong)


def test_an_output_of_another_size_is_described() -> None:
    with pytest.raises(UsageError, match="has 3 elements of float64; allowed: 4 of float32"):
        output_view(np.zeros(3), 4, _core.DType.FLOAT32, "gather")


@pytest.mark.parametrize("dtype", [each for each in _core.DType if each != _core.DType.BFLOAT16])
def test_a_new_array_has_the_type_of_the_input(dtype: _core.DType) -> None:
    made = view(empty((2, 3), dtype, "gather"))
    assert (made.dtype, made.shape, made.writable) == (dtype, (2, 3), True)
