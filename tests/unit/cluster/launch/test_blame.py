"""Whom a job failed by, from what its ranks wrote last."""

from pathlib import Path

import pytest

from slipstream.cluster.launch.blame import culprit, lost_by, telling_line

LOST = "slipstream.errors.PeerError: all_reduce 't' on group 'world': rank {} (vm, tcp) {}"


@pytest.mark.parametrize(
    "words",
    [
        "is gone: it closed the connection",
        "has left the job",
        "has been silent for 10.0 s",
        "has closed its engine",
        "closed group 'world'",
        "aborted group 'world': a ValueError",
        "cannot be reached (tried for at most 60 s); 10.0.0.1:9 did not accept the connection",
        "has not submitted it",
        "has not sent it",
        "has not received it",
        "have not submitted it",
        "has submitted it, but its data are missing",
        "have submitted it, but their data are missing",
    ],
)
def test_errors_of_the_engine_name_the_rank_that_was_lost(words: str) -> None:
    assert lost_by(1, ["Traceback:", LOST.format(3, words)]) == 3
    assert lost_by(1, [f"rank 3 {words}"]) == 3


def test_these_are_the_words_of_the_engine() -> None:
    core = Path(__file__).parents[4] / "core"
    texts = "".join(path.read_text() for path in core.rglob("*.cc"))
    for words in ("is gone: ", "has left the job", "has been silent for ", " has closed its engine",
                  " closed group '", " aborted group '", " cannot be reached (tried for at most ",
                  " has not submitted it", " has not sent it", " has not received it",
                  " have not submitted it", " has submitted it, but its data are missing",
                  " have submitted it, but their data are missing"):  # fmt: skip
        assert words in texts, words


def test_the_last_that_is_named_counts_and_never_the_rank_itself() -> None:
    lines = [LOST.format(2, "is gone: reset"), LOST.format(0, "is gone: reset"), "rank 1 is gone"]
    assert lost_by(1, lines) == 0
    assert lost_by(2, [LOST.format(2, "has closed its engine")]) is None


@pytest.mark.parametrize(
    "lines", [[], ["rank 3 is ready"], ["rank 3: loss 0.5"], ["my rank 3 has not been so good"]]
)
def test_other_words_about_ranks_blame_nobody(lines: list[str]) -> None:
    assert lost_by(1, lines) is None


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ([], ""),
        (["a", "b", ""], "b"),
        (["  ValueError: no", "in: f", ""], "ValueError: no"),
        (["KeyError: 1", "RuntimeError: 2", "At:", "  KeyboardInterrupts"], "RuntimeError: 2"),
    ],
)
def test_the_telling_line_is_the_last_that_names_an_error(lines: list[str], line: str) -> None:
    assert telling_line(lines) == line


@pytest.mark.parametrize(
    ("blames", "first", "found"),
    [
        ({}, 1, 1),
        ({1: 0}, 1, 0),
        ({2: 1, 1: 0}, 2, 0),
        ({1: 2, 2: 1}, 1, 2),  # they lost one another: whoever ended first named the other
        ({0: 1, 1: 2, 2: 0}, 0, 2),
    ],
)
def test_whom_a_rank_lost_is_asked_in_turn(blames: dict[int, int], first: int, found: int) -> None:
    def last_lines(rank: int) -> list[str]:
        return [LOST.format(blames[rank], "is gone: reset")] if rank in blames else ["ValueError"]

    assert culprit(first, last_lines) == found
