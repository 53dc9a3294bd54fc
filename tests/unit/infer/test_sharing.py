"""How many runs at a time share the cores best: what is tried, and what stays open."""

from __future__ import annotations

import itertools

import pytest

from slipstream.infer.run import sharing
from slipstream.infer.run.sharing import LEAST_RUNS, ROUNDS, Sharing, fastest_sharing


class Counter:
    """An executable that counts its runs."""

    def __init__(self):
        self.count, self.is_closed = itertools.count(), False

    def run(self, inputs):
        next(self.count)
        return inputs

    def close(self):
        self.is_closed = True


@pytest.fixture
def found(monkeypatch):
    """Return a function that finds the best number of shared runs, with very short rounds."""
    monkeypatch.setattr(sharing, "SECONDS", 0.0)

    def find(cores, first=1):
        made = {first: Counter()}

        def make(runs):
            assert runs not in made
            return made.setdefault(runs, Counter())

        best = fastest_sharing(Sharing(made[first], first), {}, cores, make)
        assert best.executable is made[best.runs]
        return best.runs, made

    return find


@pytest.mark.parametrize(
    ("cores", "first", "most"), [(1, 1, 1), (3, 2, 2), (3, 1, 2), (4, 4, 4), (7, 1, 4)]
)
def test_no_more_runs_are_tried_than_there_are_cores(found, cores, first, most):
    best, made = found(cores, first)
    assert first <= best <= max(made) <= most
    assert all(runs % first == 0 for runs in made)


def test_only_the_first_and_the_chosen_stay_open(found):
    best, made = found(8)
    assert {runs for runs, each in made.items() if not each.is_closed} == {1, best}


def test_both_have_their_turns_and_runs_before_that_do_not_count(found):
    _, made = found(2)
    assert (LEAST_RUNS, ROUNDS) == (2, 7)
    assert {runs: next(each.count) for runs, each in made.items()} == {
        1: LEAST_RUNS * (1 + ROUNDS),
        2: 2 * LEAST_RUNS * (1 + ROUNDS),
    }


@pytest.mark.parametrize(("ratio", "chosen", "closed"), [(0.0, 8, {2, 4}), (float("inf"), 1, {2})])
def test_runs_are_doubled_as_long_as_that_is_faster(found, monkeypatch, ratio, chosen, closed):
    monkeypatch.setattr(sharing, "EVEN", ratio)
    best, made = found(8)
    assert best == chosen
    assert {runs for runs, each in made.items() if each.is_closed} == closed
    assert set(made) == {1, chosen, *closed}
