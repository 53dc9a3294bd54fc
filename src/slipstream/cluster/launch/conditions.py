"""What the kernel tells about ranks that end: their state, and kills for lack of memory."""

from pathlib import Path

_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting for a device",
    "T": "stopped",
    "t": "traced",
    "Z": "ended",
    "I": "sleeping",
}


def state_of_process(pid: int) -> str:
    """Return the state of a process in words, such as "stopped"; "" if it is unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return _STATES.get(stat[stat.rindex(")") + 2 :][:1], "")


def count_oom_kills() -> int | None:
    """Return how many processes the kernel of this host has killed because memory was short.

    The count covers control groups, such as those of containers. Return None if the kernel does
    not tell.
    """
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    counts = [line.split()[1] for line in lines if line.startswith("oom_kill ")]
    return int(counts[0]) if counts else None
