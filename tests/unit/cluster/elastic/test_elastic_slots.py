"""When the next process of a slot starts, and when a job is given up."""

import dataclasses

import pytest

from slipstream.cluster.elastic.slots import Backoff, Slot
from slipstream.cluster.elastic.verdict import (
    awaited_members,
    change_over_at,
    first_failure,
    hopeless,
    members_left,
)
from slipstream.cluster.launch.launcher import Failure

FAILURE = Failure(host="a", rank=0, reason="exit code 3", seconds=1.0, exit_code=3)


def slot(number: int = 0, quick_failures: int = 0, *, is_running: bool = False) -> Slot:
    """Return a slot with some quick failures."""
    made = Slot(number=number, host="a", local_rank=number, is_running=is_running)
    for _ in range(quick_failures):
        made.backoff.count_end(0.1, is_failure=True)
    return made


def test_the_back_off_doubles_up_to_a_minute() -> None:
    backoff = Backoff()
    delays = [backoff.count_end(7.0, is_failure=True) for _ in range(9)]
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_the_back_off_begins_anew_after_a_minute_of_work() -> None:
    backoff = Backoff()
    delays = [backoff.count_end(ran, is_failure=True) for ran in (1, 59.9, 60.0, 1)]
    assert delays == [1, 2, 1, 2]


def test_only_failures_in_a_row_before_five_seconds_of_work_count() -> None:
    backoff = Backoff()
    counts: list[int] = []
    for ran, is_failure in ((1, True), (4.9, True), (1, False), (1, True), (5.0, True)):
        backoff.count_end(ran, is_failure=is_failure)
        counts.append(backoff.quick_failures)
    assert counts == [1, 2, 0, 1, 0]


def test_a_slot_remembers_its_first_failure_until_a_process_has_run_well() -> None:
    later = dataclasses.replace(FAILURE, seconds=9.0)
    made = slot()
    made.start(100.0, 0)
    assert made.end(101.0, FAILURE) == 1
    assert made.start_at == 102.0
    made.start(102.0, None)
    made.end(103.0, later)
    assert made.failure == FAILURE
    made.start(110.0, None)
    made.enter(4, 120.0)
    made.enter(5, 170.0)
    made.end(180.0, later)
    assert made.failure == later


def test_a_start_that_takes_long_is_no_training() -> None:
    """A program that failed after 17 s of imports was once started again for ever."""
    made = slot()
    for failures in range(1, 6):
        made.start(100.0, None)
        made.end(190.0, FAILURE)
        assert made.backoff.quick_failures == failures
    made.start(100.0, None)
    made.enter(1, 190.0)
    assert made.trained_seconds(192.0) == 2.0
    made.end(195.0, FAILURE)
    assert made.backoff.quick_failures == 0


def test_a_process_that_leaves_is_no_failure() -> None:
    made = slot()
    made.start(100.0, 0)
    assert made.end(101.0, None) == 1
    assert made.failure is None


def test_a_process_with_a_rank_is_a_member_and_one_that_joins_is_not_yet() -> None:
    made = slot(number=2)
    made.start(1.0, 1)
    assert (made.is_member, made.who) == (True, "rank 1 on a")
    made.start(2.0, None)
    assert (made.is_member, made.who) == (False, "slot 2 on a")


@pytest.mark.parametrize(("has_trained", "most"), [(False, 3), (True, 10)])
def test_a_program_that_fails_at_once_again_and_again_is_given_up(
    has_trained: bool, most: int
) -> None:
    others = [slot(1), slot(2)]
    assert not hopeless([slot(0, most - 1), *others], has_trained=has_trained)
    assert hopeless([slot(0, most), *others], has_trained=has_trained)


def test_one_bad_slot_does_not_end_a_job_that_runs() -> None:
    running = slot(1, is_running=True)
    assert not hopeless([slot(0, 20), running], has_trained=True)
    assert hopeless([slot(0, 20), slot(1, 20, is_running=True)], has_trained=True)
    assert not hopeless([], has_trained=False)


def raised(text: str) -> Failure:
    """Return the failure of a process whose last lines end with a text."""
    return dataclasses.replace(FAILURE, exit_code=1, last_lines=("  File 'train.py'", text))


FULL = "OSError: [Errno 28] No space left on device: 'step-{}'"


def fail_every(seconds: float, failures: list[Failure]) -> Slot:
    """Return a slot whose processes trained for so long and then failed, from the time 0 on."""
    made = slot()
    for number, failure in enumerate(failures):
        made.start(seconds * number, number)
        made.enter(number + 1, seconds * number)
        made.end(seconds * (number + 1), failure)
    return made


def test_an_error_that_comes_back_after_minutes_of_training_ends_the_job() -> None:
    """A disk that was full at each save once made a job start again for ever."""
    full = [raised(FULL.format(step)) for step in range(5)]
    made = fail_every(600.0, full)
    assert "each slot 5 times in a row" in hopeless([made], has_trained=True)
    assert not hopeless([fail_every(600.0, full[:4])], has_trained=True)
    assert not hopeless([fail_every(20.0, full)], has_trained=True), "it may soon go away"
    assert not hopeless([fail_every(4000.0, full)], has_trained=True), "it trains for long"


@pytest.mark.parametrize(
    "other",
    [
        raised("ValueError: another one"),
        dataclasses.replace(raised(FULL), exit_code=137),
        raised("PeerLostError: rank 3 (a, tcp) is gone"),
        raised("no error at all"),
    ],
)
def test_other_failures_are_not_the_same_error(other: Failure) -> None:
    failures = [raised(FULL), raised(FULL), other, raised(FULL), raised(FULL)]
    assert not hopeless([fail_every(600.0, failures)], has_trained=True)


def test_all_slots_must_have_the_same_error_and_no_process_may_run() -> None:
    """A disk was freed after the fifth error, and the sixth process was ended while it trained."""
    bad, good = fail_every(600.0, [raised(FULL)] * 5), slot(1, is_running=True)
    assert not hopeless([bad, good], has_trained=True)
    good.end(3000.0, dataclasses.replace(FAILURE, exit_code=137))
    assert not hopeless([bad, good], has_trained=True), "the other slot has no such error"
    other = fail_every(600.0, [raised(FULL)] * 6)
    assert hopeless([bad, other], has_trained=True)
    other.start(3700.0, None)
    assert not hopeless([bad, other], has_trained=True), "perhaps the error is gone"


@pytest.mark.parametrize("end", [None, dataclasses.replace(FAILURE, exit_code=137)])
def test_an_hour_of_training_ends_the_row_of_errors(end: Failure | None) -> None:
    """Five equal errors in five weeks, each followed by a week of training, are not in a row."""
    made = slot()
    for week in range(5):
        made.start(1e6 * week, 0)
        made.enter(1, 1e6 * week)
        made.end(1e6 * week + 600, raised(FULL))
        made.start(1e6 * week + 700, 0)
        made.enter(1, 1e6 * week + 700)
        made.end(1e6 * week + 9e5, end)
    assert not hopeless([made], has_trained=True)


def test_who_was_left_behind_is_not_awaited_at_the_end() -> None:
    ended, member, stopped, first, joining = (slot(n, is_running=n > 0) for n in range(5))
    ended.epoch, member.epoch, stopped.epoch = 3, 3, 2
    member.is_member = stopped.is_member = first.is_member = True
    slots = [ended, member, stopped, first, joining]
    assert awaited_members(slots, 0.1) == [member, stopped, first]  # its news may be on their way
    assert awaited_members(slots, 5.0) == [member, first]


def test_the_first_cause_is_the_earliest_failure_of_any_slot() -> None:
    early, late, never = slot(0), slot(1), slot(2)
    late.failure = dataclasses.replace(FAILURE, seconds=9.0)
    assert first_failure([never]) is None
    early.failure = FAILURE
    assert first_failure([late, early, never]) == FAILURE


def members(*epochs: int) -> list[Slot]:
    """Return slots whose processes run, and have entered these epochs."""
    slots = [slot(number) for number in range(len(epochs))]
    for each, epoch in zip(slots, epochs, strict=True):
        each.start(10.0, each.number)
        each.enter(epoch, 11.0)
    return slots


def test_a_process_that_was_left_behind_is_no_member_to_which_others_can_join() -> None:
    """A process that was stopped while all others were killed once kept a job from starting."""
    stopped, first, second = members(4, 5, 5)
    assert members_left([stopped, first, second], 100.0)
    first.end(100.0, FAILURE)
    assert members_left([stopped, first, second], 100.0)
    second.end(101.0, FAILURE)
    slots = [stopped, first, second]
    assert members_left(slots, 101.0), "it may be in the middle of a change"
    assert not members_left(slots, change_over_at(slots))
    first.start(200.0, None)  # its successor waits to join
    assert not members_left(slots, 200.0)


def test_members_without_an_epoch_yet_are_left() -> None:
    starting = slot()
    starting.start(10.0, 0)
    assert members_left([starting], 1000.0)
    assert not members_left([slot()], 0.0)
