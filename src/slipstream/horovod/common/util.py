"""What scripts and tests written for Horovod import from here."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def env(**variables: str | None) -> Generator[None]:
    """Set variables of the environment within; None leaves one as it is."""
    chosen = {name: value for name, value in variables.items() if value is not None}
    before = {name: os.environ.get(name) for name in chosen}
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def split_list(values: Sequence[T], parts: int) -> list[Sequence[T]]:
    """Return `parts` pieces of a list whose lengths differ by one at most, the longer ones first."""
    length, longer = divmod(len(values), parts)
    cuts = [length * part + min(part, longer) for part in range(parts + 1)]
    return [values[begin:end] for begin, end in zip(cuts, cuts[1:], strict=False)]


def is_iterable(value: Any) -> bool:
    """Return whether one can loop over it."""
    try:
        iter(value)
    except TypeError:
        return False
    return True


def num_rank_is_power_2(num_rank: int) -> bool:
    """Return whether Adasum can be done among so many ranks."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0
