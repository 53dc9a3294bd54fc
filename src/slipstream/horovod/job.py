"""The job that init() joins: ranks, hosts and process sets."""

from __future__ import annotations

import atexit
import gc
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from slipstream import comm
from slipstream.comm import worlds
from slipstream.comm.active import OpenEngine
from slipstream.comm.elastic.session import begun_session
from slipstream.errors import ConfigError
from slipstream.horovod.arrays import Arrays
from slipstream.horovod.common.exceptions import NOT_INITIALIZED, RefusedError
from slipstream.horovod.common.process_sets import ProcessSet, global_process_set
from slipstream.horovod.names import forget_names
from slipstream.horovod.queue import TensorQueue
from slipstream.horovod.timeline import GLOBAL_GROUP, Timeline
from slipstream.settings import HorovodSettings

_log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True)
class HorovodJob:
    """State of this process between init() and shutdown().

    Args:
        world: Group of all ranks.
        engine: Engine of the world; in an elastic job, several epochs may have the same one.
        settings: Settings of this process.
        arrays: Adapter of the framework.
        leaders: First rank on the host of each rank, indexed by rank.
        is_dynamic: Whether process sets may be added after init().
        first_sets: Process sets of init(), which exist in each epoch of an elastic job.
        suffix: Text that the names of groups end in, different in each epoch of an elastic job.
        timeline: Timeline of this rank's operations.
        queues: Queues of the process sets to which this rank belongs, by the set's identifier.
        sets: Registered process sets, by identifier.
        clones: `ProcessSet` objects that users made again for sets that are registered already.
        next_set: Identifier of the process set that is registered next.
    """

    world: comm.Group
    engine: OpenEngine
    settings: HorovodSettings
    arrays: Arrays
    leaders: tuple[int, ...]
    is_dynamic: bool
    first_sets: tuple[ProcessSet, ...] = ()
    suffix: str = ""
    timeline: Timeline
    queues: dict[int, TensorQueue] = field(default_factory=dict[int, TensorQueue])
    sets: dict[int, ProcessSet] = field(default_factory=dict[int, ProcessSet])
    clones: list[ProcessSet] = field(default_factory=list[ProcessSet])
    next_set: int = 1

    def local_ranks(self, rank: int) -> list[int]:
        """Return the ranks on the host of a rank."""
        return [peer for peer, leader in enumerate(self.leaders) if leader == self.leaders[rank]]

    def local_rank(self, rank: int) -> int:
        """Return the position of a rank among the ranks of its host."""
        return self.local_ranks(rank).index(rank)

    def cross_ranks(self, rank: int) -> list[int]:
        """Return the ranks of all hosts whose local rank equals the local rank of `rank`."""
        position = self.local_rank(rank)
        return [peer for peer in range(self.world.size) if self.local_rank(peer) == position]

    def is_homogeneous(self) -> bool:
        """Return whether all hosts have the same number of ranks."""
        return len({self.leaders.count(leader) for leader in self.leaders}) == 1


_lock = threading.Lock()  # taken while the job is joined or left; guards `_job`
_job: HorovodJob | None = None


def join_job(
    arrays: Arrays, process_sets: Sequence[ProcessSet] = (), *, is_dynamic: bool = False
) -> None:
    """Join the job, and block until all ranks have come. A second call does nothing.

    Args:
        arrays: Adapter of the framework.
        process_sets: Process sets besides the set of all ranks, the same on all ranks (default:
            none).
        is_dynamic: Whether process sets may be added later (default False).
            HOROVOD_DYNAMIC_PROCESS_SETS=1 allows later additions too.

    Raises:
        ConfigError, AuthError, PeerTimeoutError: The job cannot be joined; see `comm.init`.
        ValueError: Two process sets have the same ranks, or a second call passed a process set that
            the first did not have.
    """
    global _job
    with _lock:
        if _job is not None:
            _recognize(_job, process_sets)
            return
        settings = HorovodSettings.from_environment()
        world = _join_world(settings)
        if settings.ignored and world.rank == 0:
            _log.warning("these variables have no effect here: %s", ", ".join(settings.ignored))
        _job = _made_job(world, settings, arrays, process_sets, is_dynamic=is_dynamic)
    for process_set in process_sets:
        register(process_set)
    if settings.timeline is not None and settings.timeline != "DYNAMIC":
        _job.timeline.start(settings.timeline, marks_cycles=settings.marks_cycles)


def _made_job(
    world: comm.Group,
    settings: HorovodSettings,
    arrays: Arrays,
    first_sets: Sequence[ProcessSet],
    *,
    is_dynamic: bool,
) -> HorovodJob:
    """Make the state of this process together with all other ranks of a world."""
    facts = [min(comm.local_ranks()), settings.fusion_bytes, int(settings.separates_groups)]
    gathered: NDArray[np.int64] = world.all_gather(np.array(facts, dtype=np.int64))
    # All ranks must fuse in the same way, so the settings of rank 0 count.
    _, fusion_bytes, separates_groups = gathered[0].tolist()
    settings = replace(settings, fusion_bytes=fusion_bytes, separates_groups=bool(separates_groups))
    job = HorovodJob(
        world=world,
        engine=worlds.current_world().engine,
        settings=settings,
        arrays=arrays,
        leaders=tuple(gathered[:, 0].tolist()),
        is_dynamic=is_dynamic or settings.dynamic_process_sets,
        first_sets=tuple(first_sets),
        suffix=_suffix(),
        timeline=Timeline(world.rank),
    )
    global_process_set.register(0, range(world.size))
    job.sets[0] = global_process_set
    # The queue has its own group of all ranks: the order between its operations and those that
    # the main thread starts in `world` differs between ranks.
    all_ranks = comm.group(range(world.size), GLOBAL_GROUP + job.suffix)
    job.queues[0] = TensorQueue(all_ranks, settings, arrays, job.timeline)
    return job


def _suffix() -> str:
    session = begun_session()
    return "" if session is None else f" {session.epoch.title}"


def renew_job() -> None:
    """Make the job anew on the world that `comm.elastic` has formed; all its ranks call this.

    Operations in flight fail. Process sets become invalid, except those that init() got: they are
    registered again, if their ranks still exist. The timeline goes on if the engine does.

    Raises:
        PeerError: Another rank was lost meanwhile.
    """
    global _job
    with _lock:
        old = _job
        if old is None:
            raise ValueError(NOT_INITIALIZED)
        _close_queues(old)
        _invalidate_sets(old)
        forget_names()
        _job = _made_job(
            comm.world(), old.settings, old.arrays, old.first_sets, is_dynamic=old.is_dynamic
        )
        _job.timeline.marks_cycles = old.timeline.marks_cycles
    is_replaced = _job.engine is not old.engine
    first_sets = old.first_sets
    del old
    if is_replaced:
        # Old queues are in reference cycles with their threads and errors, and hold the old engine.
        gc.collect()
    for process_set in first_sets:
        if tuple(process_set.ranks) == tuple(range(_job.world.size)):
            process_set.register(0, process_set.ranks)
            _job.clones.append(process_set)
        elif max(process_set.ranks) < _job.world.size:
            register(process_set)
        else:
            _log.warning("%s is invalid now, because some of its ranks are gone", process_set)


def _close_queues(left: HorovodJob) -> None:
    for queue in left.queues.values():
        queue.group.close()
        queue.close()


def _invalidate_sets(left: HorovodJob) -> None:
    for process_set in [*left.sets.values(), *left.clones]:
        if process_set.process_set_id:
            process_set.invalidate()


def _join_world(settings: HorovodSettings) -> comm.Group:
    world = comm.init(settings.of_engine())
    launched = settings.launched_size
    if launched not in (None, world.size) and begun_session() is None:
        comm.shutdown()
        raise ConfigError(
            f"HOROVOD_SIZE is {launched}, but this job has {world.size} rank(s): launchers of"
            " Horovod itself cannot start it. Use `slipstream run -np N`, or, with horovodrun's"
            " options, `python -m slipstream.horovod.run`"
        )
    return world


def _recognize(joined: HorovodJob, process_sets: Sequence[ProcessSet]) -> None:
    """Give process sets the identifiers of the registered sets that have the same ranks."""
    numbers = {tuple(registered.ranks): number for number, registered in joined.sets.items()}
    for process_set in process_sets:
        number = numbers.get(tuple(process_set.ranks))
        if number is None:
            raise ValueError(
                f"hvd.init() was called before without {process_set}; call add_process_set(), or"
                " shutdown() first"
            )
        process_set.register(number, process_set.ranks)
        joined.clones.append(process_set)


@atexit.register
def leave_job() -> None:
    """Leave the job: operations in flight fail, and init() can be called again.

    A second call does nothing; the function also runs at exit.
    """
    global _job
    with _lock:
        if _job is None:
            return
        for queue in _job.queues.values():
            queue.close()
        _invalidate_sets(_job)
        _job = None
        comm.shutdown()


def job() -> HorovodJob:
    """Return the job.

    Raises:
        ValueError: This process is in no job, because init() has not been called.
    """
    if _job is None:
        raise ValueError(NOT_INITIALIZED)
    return _job


def is_initialized() -> bool:
    """Return whether this process is in a job: after init() and before shutdown()."""
    return _job is not None


def register(process_set: ProcessSet) -> None:
    """Register a process set; all ranks must call this function with the same set.

    The call blocks until all ranks have called.

    Raises:
        ValueError: The set has the same ranks as a registered set, its ranks are not ranks of the
            job, or the ranks passed different sets.
    """
    joined = job()
    ranks = list(process_set.ranks)
    _check_ranks(joined, process_set, ranks)
    number = joined.next_set
    joined.next_set += 1
    if joined.world.rank in ranks:
        group = comm.group(ranks, f"process set {number}{joined.suffix}")
        joined.queues[number] = TensorQueue(group, joined.settings, joined.arrays, joined.timeline)
    process_set.register(number, ranks)
    joined.sets[number] = process_set


def unregister(process_set: ProcessSet) -> bool:
    """Remove a process set from the job on all ranks, and return whether it was registered."""
    joined = job()
    number = process_set.process_set_id
    if not number or number not in joined.sets:  # the set of all ranks (0) stays
        return False
    joined.world.barrier(name="remove_process_set")
    queue = joined.queues.pop(number, None)
    if queue is not None:
        queue.close()
        queue.group.close()
    for same_set in (joined.sets.pop(number), process_set, *joined.clones):
        if same_set.process_set_id == number:
            same_set.invalidate()
    return True


def queue_of(process_set: ProcessSet) -> TensorQueue:
    """Return the queue to which tensors of a process set are submitted.

    Raises:
        ValueError: The process set is not registered, or this rank is not in it.
        RefusedError: This process is in no job, because init() has not been called.
    """
    if _job is None:
        raise RefusedError(NOT_INITIALIZED)
    joined = _job
    number = process_set.process_set_id
    if number is None or number not in joined.sets:
        raise ValueError(
            f"Process set provided does not exist, or has not been registered. {process_set}"
        )
    if number not in joined.queues:
        raise ValueError(
            f"Rank {joined.world.rank} is not a member of the provided process set. {process_set}"
        )
    return joined.queues[number]


def _check_ranks(joined: HorovodJob, process_set: ProcessSet, ranks: list[int]) -> None:
    size = joined.world.size
    if not ranks or not all(0 <= rank < size for rank in ranks) or len(set(ranks)) < len(ranks):
        raise ValueError(
            f"{process_set} cannot be registered; allowed: each of the ranks 0 to {size - 1} at"
            " most once, and at least one of them"
        )
    flags = np.zeros(size, dtype=np.int32)
    flags[ranks] = 1
    gathered: NDArray[np.int32] = joined.world.all_gather(flags, name="process set")
    if not (gathered == flags).all():
        passed = "; ".join(f"rank {r}: {np.flatnonzero(row)}" for r, row in enumerate(gathered))
        raise ValueError(f"the ranks add different process sets: {passed}")
    if any(ranks == registered.ranks for registered in joined.sets.values()):
        raise ValueError(f"Attempted to add a duplicate process set: {process_set}")
