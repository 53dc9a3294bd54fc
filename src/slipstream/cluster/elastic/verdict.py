"""The decision that an elastic job has failed, from the failures of its slots."""

from collections.abc import Sequence

from slipstream.cluster.elastic.slots import QUICK_SECONDS, Slot
from slipstream.cluster.launch.launcher import Failure

# Failures in a row, each before five seconds of training, that show an error of the program. The
# second number holds as long as no process of the job has trained for longer. Chosen by hand.
MAX_QUICK_FAILURES = 10
MAX_FIRST_FAILURES = 3
# Failures in a row by the same error, and the shortest time in which they show that it will not go
# away by itself, however long the processes train before: a full disk, a batch of damaged data.
# Chosen by hand.
MAX_SAME_ERRORS = 5
SAME_ERROR_SECONDS = 120.0

# Longest time in which members that are left form the next epoch, after the end of a process: they
# notice it within 5 s, and may have to meet by new engines. Chosen by hand.
CHANGE_SECONDS = 60.0

# Time after the first success in which all hosts tell the newest epochs of their processes.
NEWS_SECONDS = 2.0


def hopeless(used: Sequence[Slot], *, has_trained: bool) -> str:
    """Return why another start is no use; "" if it may be of use.

    One slot in which a program fails at once again and again is enough if no process runs;
    otherwise, all slots must fail so. An error that comes after some training must have ended the
    processes of all slots, and none may run: one that trains well shows that the error is gone.

    Args:
        used: Slots that the job uses.
        has_trained: Whether a process of the job ever trained for longer than five seconds.
    """
    most = MAX_QUICK_FAILURES if has_trained else MAX_FIRST_FAILURES
    failing = [slot for slot in used if slot.backoff.quick_failures >= most]
    is_alone = not any(slot.is_running for slot in used)
    if failing and (is_alone or len(failing) == len(used)):
        return f"this happened again and again, before {QUICK_SECONDS:g} s of training"
    if used and is_alone and all(map(_repeats_an_error, used)):
        least = min(slot.same_error.num_failures for slot in used)
        return (
            f"the same error has ended the process of each slot {least} times in a row, so another"
            " start is no use"
        )
    return ""


def _repeats_an_error(slot: Slot) -> bool:
    same = slot.same_error
    return same.num_failures >= MAX_SAME_ERRORS and same.last - same.since >= SAME_ERROR_SECONDS


def awaited_members(slots: Sequence[Slot], finished_seconds: float) -> list[Slot]:
    """Return the slots whose processes take part in the end of the training.

    A process that was stopped while the others went on is in an earlier epoch than they are or
    were. It has nothing to finish, and may never end.

    Args:
        slots: All slots of the job.
        finished_seconds: Time in seconds since the first process has ended with 0.
    """
    members = [slot for slot in slots if slot.is_running and slot.is_member]
    if finished_seconds < NEWS_SECONDS:
        return members
    newest = max((slot.epoch for slot in slots), default=0)
    return [slot for slot in members if slot.epoch in (0, newest)]


def members_left(slots: Sequence[Slot], now: float) -> bool:
    """Return whether members may be left, to which other processes can join.

    A process that was stopped while the others went on is in an earlier epoch, and can admit
    nobody. Members in the middle of a change are so, too, but not for long.

    Args:
        slots: All slots of the job.
        now: Time on the monotonic clock.
    """
    members = [slot for slot in slots if slot.is_running and slot.is_member]
    newest = max((slot.newest_epoch for slot in slots), default=0)
    is_led = any(slot.epoch in (0, newest) for slot in members)
    return is_led or (bool(members) and now < change_over_at(slots))


def change_over_at(slots: Sequence[Slot]) -> float:
    """Return the time from which no member can be in the middle of a change, if none ends."""
    return max((slot.ended_at for slot in slots), default=0.0) + CHANGE_SECONDS


def first_failure(slots: Sequence[Slot]) -> Failure | None:
    """Return the first failure of the slots that no well-running process has followed, or None."""
    failures = [slot.failure for slot in slots if slot.failure is not None]
    return min(failures, key=lambda failure: failure.seconds, default=None)
