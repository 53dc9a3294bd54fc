"""What a timeline shows of the Horovod API, beside the engine's operations: who waited for whom."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from slipstream import comm
from slipstream.horovod.fusion import Ready

_PROCESS = 1_000_000  # plus the rank: not the number of one
GLOBAL_GROUP = "horovod"  # all ranks

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Timeline:
    """Tensors from their submission until all ranks have them, each in a row of its own.

    Args:
        rank: Rank of this process.
        marks_cycles: Whether rounds of the negotiation are marked.
    """

    rank: int
    marks_cycles: bool = False

    def start(self, path: str, *, marks_cycles: bool) -> None:
        """Record from now on; without `{rank}` in the path, rank 0 does.

        While something is recorded this only says so, as in Horovod.
        """
        recorded = comm.timeline.path()
        if recorded is not None:
            _log.warning("a timeline is being recorded to %r already", str(recorded))
        elif self.rank == 0 or "{rank}" in path:
            comm.timeline.start(path)
            self.marks_cycles = marks_cycles

    def add(self, group: str, ready: Sequence[Ready], agreed: int) -> None:
        """Note what all ranks of a group have since then, in ns."""
        if comm.timeline.path() is None:
            return
        bars = [
            comm.timeline.Bar(_row(handle.name, group), _title(each), handle.submitted, agreed)
            for each in ready
            if (handle := each.handle) is not None
        ]
        if self.marks_cycles:
            bars.append(comm.timeline.Bar(_row("rounds", group), "CYCLE_START", agreed, agreed))
        comm.timeline.add(_PROCESS + self.rank, f"tensors of rank {self.rank}", bars)


def _row(name: str, group: str) -> str:
    return name if group == GLOBAL_GROUP else f"{name}, {group}"


def _title(ready: Ready) -> str:
    return f"NEGOTIATE_{ready.request.title.upper()}"
