"""A forecast restores Python's threshold of garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from slipstream.forecast.garbage import rare_collections


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_collections_are_rare_inside_only() -> None:
    with rare_collections():
        first, *others = gc.get_threshold()
        assert first > 100_000
        assert others == [10, 10]
        with rare_collections():
            assert gc.get_threshold()[0] == first
        assert gc.get_threshold()[0] == first
    assert gc.get_threshold() == (700, 10, 10)


def test_they_are_as_before_after_an_error() -> None:
    with pytest.raises(ValueError, match="wrong"), rare_collections():
        raise ValueError("wrong")
    assert gc.get_threshold() == (700, 10, 10)


def test_collections_that_are_turned_off_stay_off() -> None:
    gc.set_threshold(0, 10, 10)
    with rare_collections():
        assert gc.get_threshold() == (0, 10, 10)
