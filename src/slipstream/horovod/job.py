"""The job that init() joins: ranks, hosts, process sets. No framework is needed."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from slipstream import comm
from slipstream.errors import ConfigError
from slipstream.horovod.common.exceptions import NOT_INITIALIZED, RefusedError
from slipstream.horovod.common.process_sets import ProcessSet, global_process_set
from slipstream.horovod.queue import TensorQueue
from slipstream.horovod.request import Arrays
from slipstream.horovod.timeline import GLOBAL_GROUP, Timeline
from slipstream.settings import HorovodSettings

_log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True)
class HorovodJob:
    """State of this process between init() and shutdown().

    Args:
        world: Group of all ranks.
        settings: Settings of this process.
        arrays: Array functions of the framework.
        leaders: First rank on the host of each rank, indexed by rank.
        queues: Queues of the process sets that this rank is in, by the number of the set.
        is_dynamic: Whether process sets may be added.
        timeline: Timeline of this rank.
        sets: Registered process sets, by number.
        clones: Other objects that stand for the same sets.
        next_set: Number of the next process set.
    """

    world: comm.Group
    settings: HorovodSettings
    arrays: Arrays
    leaders: tuple[int, ...]
    is_dynamic: bool
    timeline: Timeline
    queues: dict[int, TensorQueue] = field(default_factory=dict[int, TensorQueue])
    sets: dict[int, ProcessSet] = field(default_factory=dict[int, ProcessSet])
    clones: list[ProcessSet] = field(default_factory=list[ProcessSet])
    next_set: int = 1

    def local_ranks(self, rank: int) -> list[int]:
        """Return the ranks on the host of a rank."""
        return [each for each, leader in enumerate(self.leaders) if leader == self.leaders[rank]]

    def local_rank(self, rank: int) -> int:
        """Return the position of a rank among the ranks of its host."""
        return self.local_ranks(rank).index(rank)

    def cross_ranks(self, rank: int) -> list[int]:
        """Return the ranks that have the same position on their hosts."""
        place = self.local_rank(rank)
        return [each for each in range(self.world.size) if self.local_rank(each) == place]

    def is_homogeneous(self) -> bool:
        """Return whether all hosts have the same number of ranks."""
        return len({self.leaders.count(each) for each in self.leaders}) == 1


_lock = threading.Lock()  # held while the job is joined or left; guards the one below
_job: HorovodJob | None = None


def join_job(
    arrays: Arrays, process_sets: Sequence[ProcessSet] = (), *, is_dynamic: bool = False
) -> None:
    """Join the job; again, it does nothing. Blocks until all ranks are there.

    Args:
        arrays: Array functions of the framework.
        process_sets: Further process sets, the same on all ranks.
        is_dynamic: Whether more sets may be added later; HOROVOD_DYNAMIC_PROCESS_SETS=1 allows it
            too.

    Raises:
        ConfigError, AuthError, PeerTimeoutError: as `comm.init` does.
        ValueError: two process sets have the same ranks, or the job was joined without one.
    """
    global _job
    with _lock:
        if _job is not None:
            _recognize(_job, process_sets)
            return
        settings = HorovodSettings.from_environment()
        world = _join_world(settings)
        if settings.ignored and world.rank == 0:
            _log.warning("these have no meaning here: %s", ", ".join(settings.ignored))
        facts = [min(comm.local_ranks()), settings.fusion_bytes, int(settings.separates_groups)]
        own = np.array(facts, dtype=np.int64)
        gathered: NDArray[np.int64] = world.all_gather(own)
        # All must fuse alike: rank 0 decides.
        _, fusion_bytes, separates_groups = (int(each) for each in gathered[0])
        settings = replace(
            settings, fusion_bytes=fusion_bytes, separates_groups=bool(separates_groups)
        )
        job = HorovodJob(
            world=world,
            settings=settings,
            arrays=arrays,
            leaders=tuple(int(each[0]) for each in gathered),
            is_dynamic=is_dynamic or settings.dynamic_process_sets,
            timeline=Timeline(world.rank),
        )
        global_process_set.register(0, range(world.size))
        job.sets[0] = global_process_set
        # Of its own: what the main thread does among all ranks has another order on each.
        everybody = comm.group(range(world.size), GLOBAL_GROUP)
        job.queues[0] = TensorQueue(everybody, settings, arrays, job.timeline)
        _job = job
    for each in process_sets:
        register(each)
    if settings.timeline is not None and settings.timeline != "DYNAMIC":
        job.timeline.start(settings.timeline, marks_cycles=settings.marks_cycles)


def _join_world(settings: HorovodSettings) -> comm.Group:
    world = comm.init(settings.of_engine())
    launched = settings.launched_size
    if launched not in (None, world.size):
        comm.shutdown()
        raise ConfigError(
            f"HOROVOD_SIZE is {launched}, and this job has {world.size} rank(s): Horovod's own"
            " launchers do not start it. Use `slipstream run -np N`, or, with horovodrun's options,"
            " `python -m slipstream.horovod.run`"
        )
    return world


def _recognize(joined: HorovodJob, process_sets: Sequence[ProcessSet]) -> None:
    """Make process sets usable whose ranks are those of registered sets."""
    known = {tuple(each.ranks): number for number, each in joined.sets.items()}
    for each in process_sets:
        number = known.get(tuple(each.ranks))
        if number is None:
            raise ValueError(
                f"hvd.init() was called before without {each}; call add_process_set(), or"
                " shutdown() first"
            )
        each.register(number, each.ranks)
        joined.clones.append(each)


@atexit.register
def leave_job() -> None:
    """Leave the job; what is under way fails. init() works again. Idempotent; also done at exit."""
    global _job
    with _lock:
        if _job is None:
            return
        for queue in _job.queues.values():
            queue.close()
        for each in [*_job.sets.values(), *_job.clones]:
            if each.process_set_id:
                each.invalidate()
        _job = None
        comm.shutdown()


def job() -> HorovodJob:
    """Return the job.

    Raises:
        ValueError: init() has not been called.
    """
    if _job is None:
        raise ValueError(NOT_INITIALIZED)
    return _job


def is_initialized() -> bool:
    """Return whether there is a job: after init(), before shutdown()."""
    return _job is not None


def register(process_set: ProcessSet) -> None:
    """Make a process set known on all ranks, which all call it with the same ones.

    Raises:
        ValueError: its ranks are those of another set, or are not ranks; or ranks passed others.
    """
    joined = job()
    ranks = list(process_set.ranks)
    _check_ranks(joined, process_set, ranks)
    number = joined.next_set
    joined.next_set += 1
    if joined.world.rank in ranks:
        group = comm.group(ranks, f"process set {number}")
        joined.queues[number] = TensorQueue(group, joined.settings, joined.arrays, joined.timeline)
    process_set.register(number, ranks)
    joined.sets[number] = process_set


def unregister(process_set: ProcessSet) -> bool:
    """Forget a process set, on all ranks and return whether it was known."""
    joined = job()
    number = process_set.process_set_id
    if not number or number not in joined.sets:  # none, or that of all ranks, or gone
        return False
    joined.world.barrier(name="remove_process_set")
    queue = joined.queues.pop(number, None)
    if queue is not None:
        queue.close()
        queue.group.close()
    for each in (joined.sets.pop(number), process_set, *joined.clones):
        if each.process_set_id == number:
            each.invalidate()
    return True


def queue_of(process_set: ProcessSet) -> TensorQueue:
    """Return the queue to which tensors of a process set are submitted.

    Raises:
        ValueError: it is not registered, or this rank is not in it.
        RefusedError: there is no job.
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
    if not ranks or not all(0 <= each < size for each in ranks) or len(set(ranks)) < len(ranks):
        raise ValueError(f"{process_set}; allowed: each of the ranks 0 to {size - 1} at most once")
    flags = np.zeros(size, dtype=np.int32)
    flags[ranks] = 1
    seen: NDArray[np.int32] = joined.world.all_gather(flags, name="process set")
    if not (seen == flags).all():
        passed = "; ".join(f"rank {r}: {np.flatnonzero(each)}" for r, each in enumerate(seen))
        raise ValueError(f"the ranks add different process sets: {passed}")
    if any(ranks == each.ranks for each in joined.sets.values()):
        raise ValueError(f"Attempted to add a duplicate process set: {process_set}")
