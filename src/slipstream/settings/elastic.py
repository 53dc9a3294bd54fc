"""The variables by which the launcher tells a process its part in an elastic job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.settings.launch import DIALECTS
from slipstream.settings.variables import variables

_OF_THE_LAUNCHER = ("GROUP_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_OF_HOROVOD = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")

# Variables that a process which joins must not inherit: it gets its rank when it has joined.
RANK_VARIABLES = tuple(
    dict.fromkeys(
        (
            *(name for dialect in DIALECTS for name in (dialect.rank, *dialect.marks)),
            *(name for dialect in DIALECTS for name in dialect.world_size),
            *(name for dialect in DIALECTS for name in dialect.local_rank),
            *(name for dialect in DIALECTS for name in dialect.local_world_size),
            *_OF_THE_LAUNCHER,
            *(f"HOROVOD_{name}" for name in _OF_HOROVOD),
        )
    )
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ElasticPart:
    """The part of one process in an elastic job.

    Args:
        min_ranks: Smallest number of ranks with which the job trains.
        max_ranks: Largest number of ranks of the job.
        slot: Number of the process's slot on its host, from 0.
        member_port: Port at which the process listens for processes that join.
        members: Addresses of all slots, each the name of a host and a port.
        joins: Whether the process joins a job that runs; if false, it is one of the first ranks.
    """

    min_ranks: int
    max_ranks: int
    slot: int
    member_port: int
    members: Sequence[tuple[str, int]]
    joins: bool

    def as_environment(self) -> dict[str, str]:
        """Return the variables that `Settings.from_environment` reads in the process."""
        values = {
            "min_ranks": str(self.min_ranks),
            "max_ranks": str(self.max_ranks),
            "slot": str(self.slot),
            "member_port": str(self.member_port),
            "members": ",".join(_address(host, port) for host, port in self.members),
            "joins": str(int(self.joins)),
        }
        return {variables()[field].name: text for field, text in values.items()}


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
