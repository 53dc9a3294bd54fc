"""Ranks that are threads of this process, and a disk that can lose what was not synchronized."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest


class ThreadRanks:
    """The ranks of a job whose ranks are threads; see slipstream.train.checkpoint.ranks."""

    def __init__(self, rank: int, num_ranks: int, meeting: threading.Barrier, texts: list[str]):
        self.rank = rank
        self.num_ranks = num_ranks
        self._meeting = meeting
        self._texts = texts

    def gather(self, text: str) -> list[str]:
        self._texts[self.rank] = text
        self._meeting.wait(30)
        gathered = list(self._texts)
        self._meeting.wait(30)
        return gathered


Together = Callable[[int, Callable[[ThreadRanks], Any]], list[Any]]


@pytest.fixture
def together() -> Together:
    """Call a function on a number of ranks, which are threads; return the results of all."""

    def run(num_ranks: int, function: Callable[[ThreadRanks], Any]) -> list[Any]:
        meeting = threading.Barrier(num_ranks)
        texts = [""] * num_ranks
        with ThreadPoolExecutor(num_ranks) as pool:
            calls = [
                pool.submit(function, ThreadRanks(rank, num_ranks, meeting, texts))
                for rank in range(num_ranks)
            ]
            return [call.result(60) for call in calls]

    return run
