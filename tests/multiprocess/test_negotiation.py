"""Negotiation between processes: one order on all ranks, and errors that say who passed what."""

from collections.abc import Callable
from typing import Any

import pytest

from slipstream.bench.negotiate.job import CASES, CONTENDERS
from slipstream.bench.negotiate.measure import NegotiateSpec, measure
from slipstream.bench.negotiate.table import as_json, tables
from slipstream.errors import UsageError

pytestmark = pytest.mark.multiprocess

Start = Callable[..., Any]

TCP = {rank: {"SLIPSTREAM_HOST_ID": f"host {rank}"} for rank in range(4)}


@pytest.mark.parametrize("of_rank", [{}, TCP], ids=["shm", "tcp"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_tensors_are_reduced_in_one_order(start: Start, ranks: int, of_rank: Any) -> None:
    for output in start(ranks, "negotiation.py", "orders", of_rank=of_rank).finish():
        assert "agreed" in output


def test_a_tensor_of_different_shapes_fails_on_all_ranks_and_says_who_passed_what(
    start: Start,
) -> None:
    for output in start(4, "negotiation.py", "mismatch").finish():
        assert "the ranks of group 'world' disagree about tensor 'weight':" in output
        for rank, shape in enumerate(("[3, 4]", "[3, 4]", "[3, 5]", "[3, 5]")):
            assert f"  rank {rank}: allreduce sum float32{shape}\n" in output


def test_ranks_with_less_data_join(start: Start) -> None:
    for output in start(3, "negotiation.py", "joined").finish():
        assert "rank 2 was the last to join" in output


def test_what_waits_for_a_rank_that_leaves_fails_and_names_it(start: Start) -> None:
    outputs = start(3, "negotiation.py", "left").finish()
    for output in outputs[:2]:
        assert "tensor 'waits': " in output
        assert "rank 2" in output
        assert "and fails from then on" in output


def test_a_forked_child_leaves_the_negotiator_to_its_parent(start: Start) -> None:
    for output in start(2, "negotiation.py", "forked").finish():
        assert "a negotiator was used in a forked child process" in output


def test_wrong_calls_say_what_is_allowed(start: Start) -> None:
    (output,) = start(1, "negotiation.py", "wrong").finish()
    for text in (
        "a tensor has no name",
        "1 tensors were submitted with 0 tokens; pass one token for each tensor",
        "collective is 'allreduction'; allowed: allreduce, reduce_scatter, all_gather,",
        "codec is 'fp12'; allowed: none, fp16, bf16, int8",
    ):
        assert text in output


def test_the_benchmark_measures_both_ways_to_agree() -> None:
    report = measure(NegotiateSpec(ranks=(2,), tensors=30, rounds=2), lambda note: None)
    measured = {(each.contender, each.case) for each in report.results[2]}
    assert measured == {(who, case) for who in CONTENDERS for case in CASES}
    for each in report.results[2]:
        assert all(seconds > 0 for seconds in each.seconds)
        assert all(messages > 0 for messages in each.messages)
    assert len(as_json(report)["results"]) == 6
    assert tables(report)[0].row_count == 6


@pytest.mark.parametrize("wrong", [{"ranks": (1,)}, {"ranks": ()}, {"tensors": 0}, {"rounds": 0}])
def test_the_benchmark_refuses_what_it_cannot_measure(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="allowed"):
        NegotiateSpec(**wrong)
