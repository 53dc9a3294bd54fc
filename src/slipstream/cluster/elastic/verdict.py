"""The decision that an elastic job has failed, from the failures of its slots."""

from collections.abc import Sequence

from slipstream.cluster.elastic.slots import Slot
from slipstream.cluster.launcher import Failure

# Failures in a row, each before five seconds of training, that show an error of the program. The
# second number holds as long as no process of the job has trained for longer. Chosen by hand.
MAX_QUICK_FAILURES = 10
MAX_FIRST_FAILURES = 3

# Time after the first success in which all hosts tell the newest epochs of their processes.
NEWS_SECONDS = 2.0


def is_hopeless(used: Sequence[Slot], *, has_trained: bool) -> bool:
    """Return whether the program fails so quickly and so often that another start is no use.

    One such slot is enough if no process runs; otherwise, all slots must fail so.

    Args:
        used: Slots that the job uses.
        has_trained: Whether a process of the job ever trained for longer than five seconds.
    """
    most = MAX_QUICK_FAILURES if has_trained else MAX_FIRST_FAILURES
    hopeless = [slot for slot in used if slot.backoff.quick_failures >= most]
    is_alone = not any(slot.is_running for slot in used)
    return bool(hopeless) and (is_alone or len(hopeless) == len(used))


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


def first_failure(slots: Sequence[Slot]) -> Failure | None:
    """Return the first failure of the slots that no well-running process has followed, or None."""
    failures = [slot.failure for slot in slots if slot.failure is not None]
    return min(failures, key=lambda failure: failure.seconds, default=None)
