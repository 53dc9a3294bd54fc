"""Bars of the Horovod API in a timeline, which show how long each tensor waited for other ranks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from slipstream import comm
from slipstream.horovod.fusion import ReadyTensor

# Added to the rank, so that this process of the timeline is not one of the engine's.
_PROCESS = 1_000_000
GLOBAL_GROUP = "horovod"  # name of the group of all ranks

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Timeline:
    """Recorder of the time from a tensor's submission on this rank to its submission on all ranks.

    Each tensor name has a row of its own in the timeline.

    Args:
        rank: Rank of this process.
        marks_cycles: Whether rounds of the negotiation are marked in the timeline (default False).
    """

    rank: int
    marks_cycles: bool = False

    def start(self, path: str, *, marks_cycles: bool) -> None:
        """Start to record; if a timeline is being recorded already, only warn, as Horovod does.

        Args:
            path: Path of the timeline's file; `{rank}` in the path becomes the rank. Without
                `{rank}` in the path, only rank 0 records.
            marks_cycles: Whether rounds of the negotiation are marked in the timeline.
        """
        recorded = comm.timeline.path()
        if recorded is not None:
            _log.warning("a timeline is being recorded to %r already", str(recorded))
        elif self.rank == 0 or "{rank}" in path:
            comm.timeline.start(path)
            self.marks_cycles = marks_cycles

    def add(self, group: str, ready: Sequence[ReadyTensor], agreed: int) -> None:
        """Add the bars of tensors that all ranks of a group have submitted.

        Args:
            group: Name of the group.
            ready: Tensors.
            agreed: Time in ns of the monotonic clock at which all ranks had submitted the tensors.
        """
        if comm.timeline.path() is None:
            return
        bars = [
            comm.timeline.Bar(_row(handle.name, group), _title(member), handle.submitted, agreed)
            for member in ready
            if (handle := member.handle) is not None
        ]
        if self.marks_cycles:
            bars.append(comm.timeline.Bar(_row("rounds", group), "CYCLE_START", agreed, agreed))
        comm.timeline.add(_PROCESS + self.rank, f"tensors of rank {self.rank}", bars)


def _row(name: str, group: str) -> str:
    return name if group.startswith(GLOBAL_GROUP) else f"{name}, {group}"


def _title(ready: ReadyTensor) -> str:
    return f"NEGOTIATE_{ready.request.title.upper()}"
