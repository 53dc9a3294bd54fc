"""The variables by which the launcher tells a process its part in an elastic job."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO

from slipstream.settings.launch import DIALECTS
from slipstream.settings.variables import Settings, variables

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


# Settings that a launcher makes for one process of an elastic job.
_PART = (
    *("min_ranks", "max_ranks", "slot", "member_port", "members", "joins", "job_slot"),
    *("host_name", "hosts_may_join", "whole_hosts", "member_fd"),
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
        job_slot: Number of the process's slot in the job, from 0.
        host_name: Name of the process's host in the list of hosts.
        hosts_may_join: Whether processes on other hosts may join the job (default False).
        whole_hosts: Whether all ranks of a host leave when one of them is lost (default False).
        rank_hint: Rank that the process is likely to get, for scripts that read HOROVOD_RANK; None
            (the default) if they should not find a rank before the process has joined.
    """

    min_ranks: int
    max_ranks: int
    slot: int
    member_port: int
    members: Sequence[tuple[str, int]]
    joins: bool
    job_slot: int
    host_name: str
    hosts_may_join: bool = False
    whole_hosts: bool = False
    rank_hint: int | None = None

    def as_environment(self) -> dict[str, str]:
        """Return the variables that `Settings.from_environment` reads in the process."""
        values = {
            "min_ranks": str(self.min_ranks),
            "max_ranks": str(self.max_ranks),
            "slot": str(self.slot),
            "member_port": str(self.member_port),
            "members": ",".join(_address(host, port) for host, port in self.members),
            "joins": str(int(self.joins)),
            "job_slot": str(self.job_slot),
            "host_name": self.host_name,
            "hosts_may_join": str(int(self.hosts_may_join)),
            "whole_hosts": str(int(self.whole_hosts)),
        }
        of_horovod = {"HOROVOD_HOSTNAME": self.host_name}
        if self.rank_hint is not None:
            of_horovod["HOROVOD_RANK"] = str(self.rank_hint)
        return {variables()[field].name: text for field, text in values.items()} | of_horovod


def member_fd_environment(descriptor: int) -> dict[str, str]:
    """Return the variable that names the descriptor for `announce_member`."""
    return {variables()["member_fd"].name: str(descriptor)}


def without_elastic_part(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables without those by which a launcher told this process its part in a job.

    A process of an elastic job may start a job of its own, whose ranks would join the first one.

    Args:
        environ: Environment variables of this process.
    """
    names = {variables()[field].name for field in _PART}
    has_part = variables()["member_fd"].name in environ
    return {name: text for name, text in environ.items() if not has_part or name not in names}


def announce_epoch(settings: Settings, epoch: int) -> None:
    """Tell the launcher that this process is a member of an epoch of its job.

    The launcher then counts the process. It waits for members at the end of the training, and if no
    member is left, it starts the job again. Without a launcher that listens, this does nothing.

    Args:
        settings: Settings of this process.
        epoch: Number of the epoch.
    """
    if settings.member_fd is not None:
        with contextlib.suppress(OSError):  # the launcher and its agent are gone
            os.write(settings.member_fd, b"%d\n" % epoch)


def follow_joiners(settings: Settings, take: Callable[[frozenset[int]], None]) -> None:
    """Follow the launcher's news about processes that have started and will join; do not block.

    Without a launcher that tells such news, this does nothing.

    Args:
        settings: Settings of this process.
        take: Function that gets the slots of those processes whenever they have changed. It is
            called in a thread, which ends with the launcher.
    """
    if settings.member_fd is None:
        return
    descriptor = settings.member_fd

    def follow() -> None:
        with open(descriptor, "rb", buffering=0, closefd=False) as news:
            rest = b""
            while received := _received(news):
                *lines, rest = (rest + received).split(b"\n")
                for line in lines:
                    take(frozenset(int(word) for word in line.split()))

    threading.Thread(target=follow, name="slipstream-joiners", daemon=True).start()


def _received(news: FileIO) -> bytes:
    try:
        return news.read(4096) or b""
    except OSError:  # the agent is gone
        return b""


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
