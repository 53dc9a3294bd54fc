"""New starts after failures: which failures count, the back-off, and bad hosts."""

import pytest

from slipstream.cluster.head.placement import RetryRules
from slipstream.cluster.head.verdict import WELL_SECONDS, RestartCount, classify
from slipstream.cluster.launch.launcher import Failure


def failure(
    code: int = 1, *, host: str = "a", rank: int | None = 0, seconds: float = 10.0
) -> Failure:
    return Failure(host=host, rank=rank, reason="r", seconds=seconds, exit_code=code)


@pytest.mark.parametrize(
    ("failed", "kind"),
    [
        (failure(1), "retryable"),
        (failure(2), "permanent"),
        (failure(137), "retryable"),
        (failure(143), "preempted"),
        (failure(1, rank=None), "preempted"),
        (failure(1, rank=None, seconds=1.0), "retryable"),
    ],
)
def test_exit_codes_have_classes(failed: Failure, kind: str) -> None:
    assert classify(failed, RetryRules()) == kind


def test_a_job_starts_again_as_often_as_allowed() -> None:
    attempts = RestartCount(RetryRules(max_restarts=2))
    for _ in range(2):
        assert attempts.reason_to_stop(failure()) == ""
        attempts.count(failure(), 1.0)
    assert "2 times, as often as allowed" in attempts.reason_to_stop(failure())


def test_lost_hosts_do_not_count_and_need_no_pause() -> None:
    attempts = RestartCount(RetryRules(max_restarts=0))
    for _ in range(10):
        assert attempts.reason_to_stop(failure(rank=None)) == ""
        assert attempts.count(failure(rank=None), 1.0) == 0.0
    assert attempts.reason_to_stop(failure()) != ""


def test_a_permanent_code_ends_the_job() -> None:
    assert "permanent" in RestartCount(RetryRules(permanent_codes=(2, 9))).reason_to_stop(
        failure(9)
    )


def test_the_pause_doubles_up_to_the_longest_and_begins_anew_after_a_good_attempt() -> None:
    attempts = RestartCount(RetryRules(backoff_seconds=(1.0, 5.0)))
    assert [attempts.count(failure(), 1.0) for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]
    assert attempts.count(failure(), WELL_SECONDS) == 1.0


def test_a_host_on_which_failures_begin_is_not_used_for_a_time() -> None:
    attempts = RestartCount(RetryRules(bad_host_failures=2, bad_host_seconds=3600))
    attempts.count(failure(host="a"), 1.0)
    attempts.count(failure(host="b"), 1.0)
    attempts.count(failure(host="a"), 1.0)
    assert not attempts.is_bad("a")
    attempts.count(failure(host="a"), 1.0)
    assert attempts.is_bad("a")
    assert not attempts.is_bad("b")


def test_a_bad_host_is_used_again_later() -> None:
    attempts = RestartCount(RetryRules(bad_host_failures=1, bad_host_seconds=0))
    attempts.count(failure(host="a"), 1.0)
    assert not attempts.is_bad("a")
