"""Cases of functions of a framework, for sweeps that compare an import with the framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

ROUNDING_DB = 110.0  # float32: 144 for one operation


@dataclass(frozen=True)
class Case:
    """A function and its inputs; the first word of the name is the operator."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    least_db: float = ROUNDING_DB


class Numbers:
    """Random arrays, the same in every run."""

    def __init__(self, seed: int = 11) -> None:
        self.random = np.random.default_rng(seed)

    def floats(self, *shape: int) -> Any:
        return self.random.standard_normal(shape).astype(np.float32)

    def positive(self, *shape: int) -> Any:
        return np.abs(self.floats(*shape)) + 0.1

    def whole(self, *shape: int, dtype: Any = np.int32, low: int = -5, high: int = 6) -> Any:
        return self.random.integers(low, high, shape).astype(dtype)

    def flags(self, *shape: int) -> Any:
        return self.random.integers(0, 2, shape).astype(bool)


def cases(*groups: Iterable[Case]) -> list[Any]:
    """Return the parameters of a sweep, of which the first case of each operator is a corner."""
    found: list[Any] = []
    operators: set[str] = set()
    for case in (case for group in groups for case in group):
        operator = case.name.split()[0]
        marks = () if operator in operators else pytest.mark.corner
        operators.add(operator)
        found.append(pytest.param(case, id=f"{len(found)}-{case.name}", marks=marks))
    return found
