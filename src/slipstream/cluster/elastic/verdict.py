"""The decision that an elastic job has failed, from the failures of its slots."""

from collections.abc import Sequence

from slipstream.cluster.elastic.slots import Slot
from slipstream.cluster.launcher import Failure

# Failures in a row, each before five seconds of training, that show an error of the program. The
# second number holds as long as no process of the job has trained for longer. Chosen by hand.
MAX_QUICK_FAILURES = 10
MAX_FIRST_FAILURES = 5


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


def first_failure(slots: Sequence[Slot]) -> Failure | None:
    """Return the first failure of the slots that no well-running process has followed, or None."""
    failures = [slot.failure for slot in slots if slot.failure is not None]
    return min(failures, key=lambda failure: failure.seconds, default=None)
