"""Rows of an all-to-all are divided as the user says, or evenly."""

from typing import Any

import numpy as np
import pytest

from slipstream.horovod.splits import split_rows


@pytest.mark.parametrize(
    ("splits", "counts"),
    [
        (None, [2, 2, 2]),
        ([], [2, 2, 2]),
        ([3, 0, 2], [3, 0, 2]),
        ((1, 2, 3), [1, 2, 3]),
        (np.array([1, 2, 3], np.int32), [1, 2, 3]),
        (np.array([0, 0, 6], np.int64), [0, 0, 6]),
        (np.array([], np.int64), [2, 2, 2]),
    ],
)
def test_rows_are_divided(splits: Any, counts: list[int]) -> None:
    assert split_rows(splits, 6, 3) == counts


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        (None, "not an even multiple of the number of workers. It is 7, there are 3"),
        ([1, 2], "does not equal number of workers. They are 2, there are 3"),
        ([4, 4, 0], r"Sum of splits entries is greater .* They are \[4, 4, 0\], of 7 rows"),
        ([-1, 1, 1], "or one is below 0"),
        (np.ones(3), r"32-bit integer elements.* They are \(3,\) of float64"),
        (np.ones((3, 1), np.int32), r"in one dimension. They are \(3, 1\) of int32"),
        ([[1], [1], [1]], r"in one dimension. They are \(3, 1\) of int32"),
    ],
)
def test_splits_that_do_not_fit_are_refused(splits: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_rows(splits, 7, 3)
