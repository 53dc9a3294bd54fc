"""The group of all ranks, made from the variables of the launcher and from the settings."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from slipstream import _core
from slipstream.comm import reception, rendezvous
from slipstream.comm.active import OpenEngine
from slipstream.comm.auth import Claim
from slipstream.comm.collectives import Group
from slipstream.comm.config import engine_config
from slipstream.comm.rendezvous import Meeting
from slipstream.errors import ConfigError, UsageError
from slipstream.settings import Launch, Settings, detect_launcher

_LEAST_CONNECT_SECONDS = 1.0
_DRAWN_KEY_BYTES = 32

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class _World:
    engine: OpenEngine
    group: Group
    local_ranks: tuple[int, ...]


_lock = threading.Lock()  # guards the next two variables
_world: _World | None = None
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
    with _lock:
        if _world is None:
            chosen = settings or Settings.from_environment()
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


def is_initialized() -> bool:
    """Return whether this process has joined the job by init() and not left it by shutdown()."""
    return _world is not None


def world() -> Group:
    """Return the group of all ranks.

    Raises:
        UsageError: init() has not been called.
    """
    return _current().group


def group(ranks: Sequence[int], name: str | None = None) -> Group:
    """Make a group of some ranks of the job; does not communicate and does not block.

    Only the ranks of the new group call `group`. Ranks that make several groups with the same name
    must make them in the same order.

    Args:
        ranks: World ranks of the group, including this rank; rank i of the group is the i-th of
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
    return Group(_current().engine.runtime.group(name or f"ranks {_listed(chosen)}", chosen))


def rank() -> int:
    """Return the rank of this process, 0 to size() - 1."""
    return world().rank


def size() -> int:
    """Return the number of ranks of the job."""
    return world().size


def local_rank() -> int:
    """Return the rank of this process among the ranks of its host, 0 to local_size() - 1."""
    return _current().local_ranks.index(rank())


def local_ranks() -> tuple[int, ...]:
    """Return the ranks of this host, which share memory with this rank, in ascending order."""
    return _current().local_ranks


def local_size() -> int:
    """Return the number of ranks of this host, which share memory with this rank."""
    return len(_current().local_ranks)


def _current() -> _World:
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


def _join(settings: Settings, launch: Launch, epoch: int) -> _World:
    deadline = time.monotonic() + settings.connect_timeout_seconds
    claim = Claim(rank=launch.rank, world_size=launch.world_size, epoch=epoch)
    key = _key(settings, launch)
    runtime = _core.Runtime(
        rank=claim.rank,
        world_size=claim.world_size,
        epoch=epoch,
        key=key,
        config=engine_config(settings, launch.master_addr if launch.world_size > 1 else None),
    )
    try:
        meeting = Meeting(
            host=launch.master_addr,
            port=settings.listen_port(launch),
            key=key,
            claim=claim,
            seconds=settings.connect_timeout_seconds,
        )
        addresses = _exchange(meeting, runtime.address())
        runtime.connect(addresses, max(_LEAST_CONNECT_SECONDS, deadline - time.monotonic()))
        engine = OpenEngine(runtime, launch.rank, settings.timeline)
    except BaseException:
        runtime.close()
        raise
    _log.info("rank %d of %d, epoch %d", launch.rank, launch.world_size, epoch)
    everybody = runtime.group("world", list(range(launch.world_size)))
    return _World(engine=engine, group=Group(everybody), local_ranks=tuple(runtime.local_ranks()))


def _exchange(meeting: Meeting, address: bytes) -> list[bytes]:
    if meeting.claim.world_size == 1:
        return [address]
    if meeting.claim.rank == 0:
        return reception.receive(meeting, address)
    return rendezvous.join(meeting, address)


def _key(settings: Settings, launch: Launch) -> bytes:
    key = settings.load_job_key()
    if key is not None:
        return key
    if launch.world_size == 1:
        return secrets.token_bytes(_DRAWN_KEY_BYTES)
    raise ConfigError(
        f"rank {launch.rank} of {launch.world_size} has no job key, so it cannot distinguish its"
        " peers from strangers; start the ranks with `slipstream run`, which makes a key, or set"
        " SLIPSTREAM_JOB_KEY or SLIPSTREAM_KEY_FILE to the same secret on every rank"
    )
