"""The group of all ranks, made from the variables of the launcher and from the settings."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from slipstream.comm import reception, rendezvous
from slipstream.comm.active import OpenEngine
from slipstream.comm.auth import Claim
from slipstream.comm.collectives import Group
from slipstream.comm.opening import Seat, job_key, open_engine
from slipstream.comm.rendezvous import Meeting
from slipstream.errors import UsageError
from slipstream.settings import Launch, Settings, detect_launcher

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommWorld:
    """All ranks of the job, with the engine that connects them.

    Args:
        engine: Engine of this process.
        group: Group of all ranks.
        members: Rank in the engine of each rank of the job. The two differ after ranks were lost,
            because the engine keeps its numbers.
    """

    engine: OpenEngine
    group: Group
    members: tuple[int, ...]


def made_world(engine: OpenEngine, members: Sequence[int], name: str) -> CommWorld:
    """Make a world of some ranks of an engine, which all of them must make.

    Args:
        engine: Engine of this process.
        members: Ranks in the engine, in the order of the ranks of the job.
        name: Name of the world's group, the same on all ranks and new in this engine.
    """
    group = Group(engine.runtime.group(name, list(members)))
    return CommWorld(engine=engine, group=group, members=tuple(members))


_lock = threading.Lock()  # guards the next two variables
_world: CommWorld | None = None
_epoch = 0  # number of worlds that this process has made


def init(settings: Settings | None = None) -> Group:
    """Connect this rank with all ranks of the job, and block until all ranks have come.

    A second call returns the same group. The launcher (`slipstream run`, torchrun, mpirun, srun)
    sets the rank, the number of ranks and the host of rank 0; the SLIPSTREAM_* variables set
    everything else. Without a launcher, the process is a world of one rank, which needs neither a
    key nor a network.

    Args:
        settings: Settings of this process (default: from the environment).

    Returns:
        The group of all ranks, which functions such as comm.allreduce() use.

    Raises:
        ConfigError: a variable is wrong, or the job has several ranks but no key.
        AuthError: the ranks have different keys.
        PeerTimeoutError: some ranks did not come; the message names them.
    """
    global _world, _epoch
    chosen = settings or Settings.from_environment()
    if chosen.joins and _world is None:
        return _join_elastic_job(chosen)
    with _lock:
        if _world is None:
            _world = _join(chosen, detect_launcher(), _epoch + 1)
            _epoch += 1
        return _world.group


def shutdown() -> None:
    """Leave the job; operations in flight end with AbortedError.

    The call blocks until the other ranks have all data that they need from this rank, but not
    longer than a few seconds. A second call does nothing. The process also leaves the job at exit.
    After shutdown(), init() may be called again.
    """
    global _world
    with _lock:
        if _world is not None:
            _world.engine.close()
        _world = None


def adopt(world: CommWorld) -> None:
    """Make another world the world of this process; the engine of the former one stays open."""
    global _world
    with _lock:
        _world = world


def is_initialized() -> bool:
    """Return whether this process has joined the job by init() and not left it by shutdown()."""
    return _world is not None


def world() -> Group:
    """Return the group of all ranks.

    Raises:
        UsageError: init() has not been called.
    """
    return current_world().group


def group(ranks: Sequence[int], name: str | None = None) -> Group:
    """Make a group of some ranks of the job; does not communicate and does not block.

    Only the ranks of the new group call `group`. Ranks that make several groups with the same name
    must make them in the same order.

    Args:
        ranks: CommWorld ranks of the group, including this rank; rank i of the group is the i-th of
            them.
        name: Name of the group in messages and in the timeline, equal on all its ranks (default:
            made from the ranks).

    Raises:
        UsageError: `ranks` lacks this rank, repeats a rank, or names a rank that does not exist.
    """
    chosen = list(ranks)
    size = world().size
    if len(set(chosen)) != len(chosen) or not all(0 <= rank < size for rank in chosen):
        raise UsageError(f"ranks are {chosen}; allowed: each of 0 to {size - 1} at most once")
    if world().rank not in chosen:
        raise UsageError(
            f"ranks are {chosen}, without this rank, {world().rank}; only members may create"
            " the group"
        )
    here = current_world()
    numbers = [here.members[rank] for rank in chosen]
    return Group(here.engine.runtime.group(name or f"ranks {_listed(chosen)}", numbers))


def rank() -> int:
    """Return the rank of this process, 0 to size() - 1."""
    return world().rank


def size() -> int:
    """Return the number of ranks of the job."""
    return world().size


def local_rank() -> int:
    """Return the rank of this process among the ranks of its host, 0 to local_size() - 1."""
    return local_ranks().index(rank())


def local_ranks() -> tuple[int, ...]:
    """Return the ranks of this host, which share memory with this rank, in ascending order."""
    here = current_world()
    near = set(here.engine.runtime.local_ranks())
    return tuple(rank for rank, number in enumerate(here.members) if number in near)


def local_size() -> int:
    """Return the number of ranks of this host, which share memory with this rank."""
    return len(local_ranks())


def current_world() -> CommWorld:
    """Return the world of this process.

    Raises:
        UsageError: init() has not been called.
    """
    if _world is None:
        raise UsageError("there is no world; call slipstream.comm.init() first")
    return _world


def _listed(ranks: Sequence[int]) -> str:
    """Return ranks in their order as text, with ranges: "0-3,6"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)


def _join_elastic_job(settings: Settings) -> Group:
    from slipstream.comm.elastic.session import join_job  # it stands above this module

    join_job(settings)
    return world()


def _join(settings: Settings, launch: Launch, epoch: int) -> CommWorld:
    key = job_key(settings, launch)
    meeting = Meeting(
        host=launch.master_addr,
        port=settings.listen_port(launch),
        key=key,
        claim=Claim(rank=launch.rank, world_size=launch.world_size, epoch=epoch),
        seconds=settings.connect_timeout_seconds,
    )
    seat = Seat(rank=launch.rank, size=launch.world_size, epoch=epoch, key=key)
    towards = launch.master_addr if launch.world_size > 1 else None
    engine = open_engine(seat, settings, towards, partial(_exchange, meeting))
    _log.info("rank %d of %d, epoch %d", launch.rank, launch.world_size, epoch)
    return made_world(engine, range(launch.world_size), "world")


def _exchange(meeting: Meeting, address: bytes) -> list[bytes]:
    if meeting.claim.world_size == 1:
        return [address]
    if meeting.claim.rank == 0:
        return reception.receive(meeting, address)
    return rendezvous.join(meeting, address)
