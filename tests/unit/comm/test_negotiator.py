"""How a negotiator may be told to work, and what two ranks agree on."""

from collections.abc import Iterator
from typing import Any

import pytest

from slipstream import _core, comm
from slipstream.comm.negotiator import Negotiator, NegotiatorConfig, Outcome, Tensor
from slipstream.errors import ConfigError, MismatchError, UsageError

FLOAT32 = _core.DType.FLOAT32


@pytest.fixture
def negotiators(pair: list[_core.Runtime]) -> Iterator[list[Negotiator]]:
    """Yield the negotiators of two ranks."""
    groups = [comm.Group(runtime.group("two", [0, 1])) for runtime in pair]
    made = [Negotiator(groups[0], NegotiatorConfig(hold_seconds=0.0)), Negotiator(groups[1])]
    yield made
    for each in made:
        each.close()


def agreed(negotiator: Negotiator) -> Outcome:
    """Return the next outcome, without which the test fails."""
    outcome = negotiator.next(30.0)
    assert outcome is not None
    return outcome


def test_by_default_rounds_follow_at_once_and_a_minute_is_a_stall() -> None:
    config = NegotiatorConfig()
    seen = (config.cycle_seconds, config.hold_seconds, config.stall_after_seconds)
    assert seen == (0.0, 0.5, 60.0)
    assert config.most_tensors == 65536


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cycle_seconds": -0.1}, "cycle_seconds is -0.1; allowed: 0 and more"),
        ({"hold_seconds": -1}, "hold_seconds is -1; allowed: 0 and more"),
        ({"stall_after_seconds": -1}, "stall_after_seconds is -1; allowed: 0 and more"),
        ({"most_tensors": 0}, "most_tensors is 0; allowed: 1 to 4294967295"),
        ({"most_tensors": 2**32}, "most_tensors is 4294967296; allowed: 1 to 4294967295"),
    ],
)
def test_limits_are_refused_beyond_and_taken_at_the_boundary(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        NegotiatorConfig(**given)
    NegotiatorConfig(cycle_seconds=0, hold_seconds=0, stall_after_seconds=0, most_tensors=1)
    NegotiatorConfig(most_tensors=2**32 - 1)


def test_what_both_have_is_ready_with_the_token_of_each(negotiators: list[Negotiator]) -> None:
    tensor = Tensor("a", FLOAT32, (2, 3))
    negotiators[0].submit(tensor, 7)
    with pytest.raises(UsageError):
        negotiators[0].submit(tensor, 8)
    assert negotiators[0].next(0.0) is None
    negotiators[1].submit(tensor)
    outcomes = [agreed(each) for each in negotiators]
    assert [outcome.tokens for outcome in outcomes] == [[7], [0]]
    (one,) = outcomes[0].ready
    assert (one.tensor.name, one.tensor.shape, one.fused, one.submitted) == ("a", (2, 3), 0, True)
    assert negotiators[0].stats().tensors == 1


def test_several_have_tokens_that_count_up_and_what_is_fused_is_one(
    negotiators: list[Negotiator],
) -> None:
    plain = [Tensor(name, FLOAT32, (1,)) for name in "ab"]
    fused = [Tensor(name, FLOAT32, (1,)) for name in "cd"]
    tokens: list[dict[str, int]] = [{}, {}]
    groups: dict[str, int] = {}
    negotiators[0].submit_all(plain, 5)
    negotiators[1].submit_all(plain)
    for each in negotiators:
        each.submit_fused(fused, [20, 10])
    for negotiator, seen in zip(negotiators, tokens, strict=True):
        while len(seen) < 4:
            for one in agreed(negotiator).ready:
                seen[one.tensor.name] = one.token
                groups[one.tensor.name] = one.fused
    assert tokens == [{"a": 5, "b": 6, "c": 20, "d": 10}, {"a": 0, "b": 1, "c": 20, "d": 10}]
    assert groups["a"] == groups["b"] == 0 != groups["c"]
    assert groups["c"] == groups["d"]


def test_what_differs_fails_on_both(negotiators: list[Negotiator]) -> None:
    for rank, each in enumerate(negotiators):
        each.submit(Tensor("a", FLOAT32, (rank + 1,)), 3)
    for each in negotiators:
        (failed,) = agreed(each).failed
        assert (failed.tensor.name, failed.token) == ("a", 3)
        with pytest.raises(MismatchError):
            failed.check()


def test_who_has_joined_takes_part_without_data(negotiators: list[Negotiator]) -> None:
    negotiators[1].join()
    negotiators[0].submit(Tensor("a", FLOAT32, (1,)), 3)
    (mine,), (other,) = (agreed(each).ready for each in negotiators)
    assert (mine.submitted, other.submitted) == (True, False)
    negotiators[0].join()
    assert [agreed(each).last_joined for each in negotiators] == [0, 0]
