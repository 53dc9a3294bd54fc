"""Sweeps that compare an import with its framework: cases, and families that frameworks share.

A function of a case takes the arrays. If the test passes the framework itself, as for TensorFlow,
which is imported late, the framework comes before the arrays.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

ROUNDING_DB = 110.0  # signal-to-noise ratio that float32 leaves; one operation alone leaves 144
AXES = (None, 0, 1, -1, (0, 2), (1, 2))
INDICES = (
    *(np.s_[1:], np.s_[::2], np.s_[:, ::-1], np.s_[..., 1], np.s_[:, 1:2], np.s_[-1]),
    *(np.s_[0, :, 3:0:-1], np.s_[:, None, :, 2], np.s_[1:2, 2:, 1::2], np.s_[..., None]),
    *(np.s_[:, -2:, ::-2], np.s_[None, ..., -1, 1:]),
)
# Different lengths for the letters of an einsum, so that swapped axes do not go unnoticed.
LENGTHS = dict(
    zip("abcdefghijklmnopq", (2, 3, 4, 5, 3, 2, 3, 4, 2, 3, 4, 5, 2, 3, 4, 2, 3), strict=True)
)

Function = Callable[..., Any]
Functions = Sequence[tuple[str, Function]]


@dataclass(frozen=True)
class Case:
    """A function and its inputs; the first word of the name is the operator."""

    name: str
    function: Function
    inputs: tuple[Any, ...]
    least_db: float = ROUNDING_DB

    def check(self, imported: Any, shapes: list[tuple[int, ...]]) -> None:
        """Assert that an import is accurate and that its outputs have these shapes."""
        assert imported.snr_db >= self.least_db
        graph = imported.graph
        assert [graph.shape(name) for name in graph.outputs] == shapes


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

    def divisors(self, *shape: int, dtype: str) -> Any:
        """Return integers other than 0."""
        signs = [1] if dtype.startswith("u") else [-1, 1]
        magnitudes = self.random.integers(1, 10, shape)
        return (magnitudes * self.random.choice(signs, shape)).astype(dtype)


class Families(Numbers):
    """Families of cases, made from one framework's functions."""

    def unary(
        self, functions: Functions, make: Callable[[], Any], least_db: float = ROUNDING_DB
    ) -> Iterator[Case]:
        for name, function in functions:
            yield Case(name, function, (make(),), least_db)

    def powers(self, power: Function, exponents: Iterable[float]) -> Iterator[Case]:
        for exponent in exponents:
            yield Case(f"power {exponent}", bound(power, exponent), (self.positive(3, 4),))

    def binary(self, functions: Functions) -> Iterator[Case]:
        for name, function in functions:
            yield Case(name, function, (self.floats(2, 3, 4), self.floats(2, 3, 4)))
            yield Case(f"{name} broadcast", function, (self.floats(2, 3, 4), self.floats(3, 1)))
            yield Case(f"{name} scalar", bound(function, 0.7), (self.floats(5),))

    def integer_binary(self, functions: Functions, dtypes: Iterable[str]) -> Iterator[Case]:
        for (name, function), dtype in itertools.product(functions, dtypes):
            low = 0 if dtype.startswith("u") else -9
            left = self.whole(4, 5, dtype=dtype, low=low, high=10)
            yield Case(f"{name} {dtype}", function, (left, self.divisors(4, 5, dtype=dtype)))

    def logic(self, functions: Functions) -> Iterator[Case]:
        for name, function in functions:
            yield Case(f"{name} bool", function, (self.flags(3, 4), self.flags(4)))

    def casts(self, cast: Function, dtypes: Mapping[str, Any]) -> Iterator[Case]:
        for old, new in itertools.permutations(dtypes, 2):
            values = self.whole(3, 4, low=0, high=9).astype(dtypes[old])
            yield Case(f"{old} to {new}", bound(cast, dtypes[new]), (values,))

    def choices(self, where: Function, dtypes: Iterable[str]) -> Iterator[Case]:
        for dtype in dtypes:
            pair = self.whole(3, 4).astype(dtype), self.whole(4).astype(dtype)
            yield Case(f"where {dtype}", where, (self.flags(3, 4), *pair))

    def orders(self, transpose: Function, reshape: Function) -> Iterator[Case]:
        for order in itertools.permutations(range(3)):
            yield Case("transpose", bound(transpose, order), (self.floats(2, 3, 4),))
        for shape in ((24,), (4, 6), (2, 1, 3, 4), (1, 24, 1), (-1, 2), (1, -1, 1)):
            yield Case("reshape", bound(reshape, shape), (self.floats(2, 3, 4),))

    def slices(self) -> Iterator[Case]:
        for index in INDICES:
            function = lambda *inputs, index=index: inputs[-1][index]  # noqa: E731
            yield Case(f"slice {index}", function, (self.floats(2, 3, 4),))

    def along_axes(
        self, functions: Sequence[tuple[str, int, Function]], axes: Iterable[int]
    ) -> Iterator[Case]:
        """Yield cases of functions with a number of inputs and the keyword `axis`."""
        for axis, (name, count, function) in itertools.product(axes, functions):
            inputs = tuple(self.floats(2, 3, 4) for _ in range(count))
            yield Case(name, bound(function, axis=axis), inputs)

    def reductions(
        self, functions: Functions, integer_functions: Functions, flag_functions: Functions
    ) -> Iterator[Case]:
        """Yield cases of functions with the keywords `axis` and `keepdims`."""
        for (name, function), axis, keep in itertools.product(functions, AXES, (True, False)):
            run = bound(function, axis=axis, keepdims=keep)
            yield Case(f"{name} {axis}", run, (self.floats(2, 5, 3),))
        for name, function in integer_functions:
            yield Case(f"{name} whole", bound(function, axis=1), (self.whole(3, 4),))
        for name, function in flag_functions:
            yield Case(name, bound(function, axis=1), (self.flags(3, 4),))

    def extremes(self, functions: Functions, axes: Iterable[int | None]) -> Iterator[Case]:
        for (name, function), axis in itertools.product(functions, axes):
            run = bound(function, axis=axis)
            yield Case(f"{name} {axis}", run, (self.floats(2, 5, 3),))
            yield Case(f"{name} {axis} whole", run, (self.whole(2, 5, 3),))

    def einsums(self, einsum: Function, texts: Iterable[str]) -> Iterator[Case]:
        """Yield cases of a function with the keyword `text`."""
        for text in texts:
            terms = text.split("->")[0].split(",")
            operands = tuple(self.floats(*(LENGTHS[c] for c in term)) for term in terms)
            yield Case(f"einsum {text}", bound(einsum, text=text), operands)


def bound(function: Function, *last: Any, **options: Any) -> Function:
    """Return the function with its last arguments and its keywords bound."""
    return lambda *inputs, **more: function(*inputs, *last, **options, **more)


def cases(*groups: Iterable[Case]) -> list[Any]:
    """Return the parameters of a sweep, of which the first case of each group is a corner."""
    parameters: list[Any] = []
    for group in groups:
        for place, case in enumerate(group):
            marks = () if place else pytest.mark.corner
            parameters.append(pytest.param(case, id=f"{len(parameters)}-{case.name}", marks=marks))
    return parameters
