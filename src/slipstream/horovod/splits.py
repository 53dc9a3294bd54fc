"""Division of a tensor's rows among the ranks of an all-to-all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def split_rows(splits: Any | Sequence[int] | None, num_rows: int, num_ranks: int) -> list[int]:
    """Return the number of rows that each rank receives.

    Args:
        splits: Number of rows for each rank, as a sequence or an array of int32 or int64; None or
            an empty sequence means equal parts.
        num_rows: Number of rows of the tensor.
        num_ranks: Number of ranks.

    Raises:
        ValueError: `splits` is not one whole number for each rank, or its sum exceeds `num_rows`.
            Without splits: `num_rows` is not a multiple of `num_ranks`.
    """
    counts = [] if splits is None else _whole_numbers(splits)
    if not counts:
        if num_rows % num_ranks:
            raise ValueError(
                "splits not provided, but first dimension of tensor is not an even multiple of the"
                f" number of workers. It is {num_rows}, there are {num_ranks}"
            )
        return [num_rows // num_ranks] * num_ranks
    if len(counts) != num_ranks:
        raise ValueError(
            "Number of entries in splits does not equal number of workers. They are"
            f" {len(counts)}, there are {num_ranks}"
        )
    if min(counts) < 0 or sum(counts) > num_rows:
        raise ValueError(
            "Sum of splits entries is greater than the first dimension of tensor, or one is below"
            f" 0. They are {counts}, of {num_rows} rows"
        )
    return counts


def _whole_numbers(splits: Any) -> list[int]:
    is_array = hasattr(splits, "dtype")
    counts: NDArray[Any] = np.asarray(splits) if is_array else np.array(list(splits), np.int32)
    if str(counts.dtype) not in ("int32", "int64") or counts.ndim != 1:
        raise ValueError(
            "alltoall expects splits to contain 32-bit integer elements, in one dimension. They are"
            f" {counts.shape} of {counts.dtype}"
        )
    return counts.tolist()
