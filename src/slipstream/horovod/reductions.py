"""Reductions: the ways to combine the tensors of all ranks."""

from __future__ import annotations

import enum
import warnings


class Reduction(enum.IntEnum):
    """Operation that combines the tensors of all ranks into one tensor.

    The values of the enumeration are Horovod's, because some scripts pass numbers.
    """

    AVERAGE = 0
    SUM = 1
    ADASUM = 2
    MIN = 3
    MAX = 4
    PRODUCT = 5

    @property
    def engine_name(self) -> str:
        """Name of the reduction in the engine, which supports all reductions except Adasum."""
        return self.name.lower()


Average = Reduction.AVERAGE
Sum = Reduction.SUM
Adasum = Reduction.ADASUM
Min = Reduction.MIN
Max = Reduction.MAX
Product = Reduction.PRODUCT


def chosen_op(op: Reduction | None, average: bool | None) -> Reduction:
    """Return the reduction that a call asks for by `op`, or by `average`, Horovod's older form.

    Raises:
        ValueError: Both `op` and `average` were passed.
    """
    if average is None:
        return Average if op is None else Reduction(op)
    if op is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    warnings.warn(
        "Parameter `average` has been replaced with `op` and will be removed in v1.0",
        DeprecationWarning,
        stacklevel=3,
    )
    return Average if average else Reduction.SUM
