"""The states of a run, in the order in which they follow one another."""

RUN_STATES = (
    "planned",
    "creating",
    "preparing",
    "starting",
    "running",
    "collecting",
    "releasing",
    "succeeded",
    "failed",
    "cancelled",
)
END_STATES = ("succeeded", "failed", "cancelled")
