"""Connection of the engines of all ranks, which exchange addresses through PyTorch's store.

    <rank>/lives              generation: number of engines that the rank started with this store
    <generation>/key          from rank 0: the job key that it drew; empty if the user has set a key
    <generation>/address/<r>  from rank r: the address of its engine, signed with its job key
    <generation>/roster       from rank 0: all addresses, and the ranks that are missing or have
                              another job key

A store outlives a process group, so the names of all entries but the first begin with the
generation. Rank 0 collects and publishes the addresses. So n ranks read about 2n entries instead of
n * n, and all ranks learn which ranks did not come.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch.distributed import DistNetworkError
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import TCPStore  # pyright: ignore[reportPrivateImportUsage]

from slipstream import _core
from slipstream.comm import flight
from slipstream.comm.active import OpenEngine
from slipstream.comm.config import engine_config
from slipstream.errors import AuthError, ConfigError, PeerError, PeerTimeoutError
from slipstream.settings import Settings
from slipstream.torch.completions import Completions

KEY_BYTES = 32

_LIMITS = "the timeout of init_process_group or SLIPSTREAM_CONNECT_TIMEOUT, whichever is lower"

_ONE_KEY = "set SLIPSTREAM_JOB_KEY to the same value on every rank, or on none"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreMeeting:
    """Store, rank, number of ranks and time limit for an exchange of addresses.

    Args:
        store: PyTorch's store, which all ranks share.
        rank: Rank of this process among the ranks that connect.
        size: Number of ranks that connect.
        seconds: Longest time in seconds to wait for the other ranks.
    """

    store: Store
    rank: int
    size: int
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LentEngine:
    """An engine that slipstream.comm owns, for the process groups of one epoch of an elastic job.

    Args:
        engine: Engine, which stays open when this process leaves all groups.
        completions: Thread that calls the callbacks of the engine's operations.
        members: Rank in the engine of each rank of the epoch.
        title: Name of the epoch, which no other epoch has.
    """

    engine: OpenEngine
    completions: Completions
    members: tuple[int, ...]
    title: str


class World:
    """Engine of this process, which several process groups share.

    An engine of its own is closed when this process leaves the last of these groups.

    Args:
        engine: Engine, which is connected to the engines of all ranks, or one that is lent.
        settings: Settings with which the engine was made.
    """

    def __init__(self, engine: OpenEngine | LentEngine, settings: Settings) -> None:
        self.settings = settings
        if isinstance(engine, LentEngine):
            self._lent: LentEngine | None = engine
            self._engine, self.completions = engine.engine, engine.completions
        else:
            self._lent = None
            self._engine, self.completions = engine, Completions(engine.runtime)
        self._process = os.getpid()
        self._lock = threading.Lock()  # guards `_members`
        self._members = 0

    def join(self, name: str, ranks: Sequence[int]) -> Membership:
        """Join a process group without communication; return the membership in it.

        Args:
            name: Name of the process group, the same on all of its ranks.
            ranks: Ranks of the group in the engine, in group order.
        """
        with self._lock:
            self._members += 1
        return Membership(self, name, ranks)

    def group(self, name: str, ranks: Sequence[int]) -> _core.Group:
        """Create a group of the engine.

        If several groups have the same name, all ranks must create them in the same order.
        """
        if self._lent:
            name, ranks = f"{self._lent.title} {name}", [self._lent.members[rank] for rank in ranks]
        return self._engine.runtime.group(name, list(ranks))

    def leave(self, groups: Sequence[_core.Group]) -> None:
        """Close groups of the engine, and also the engine itself when its last membership ends."""
        if os.getpid() != self._process:  # the engine belongs to the parent of this forked child
            return
        for group in groups:
            group.close()
        with self._lock:
            self._members -= 1
            is_last = self._members == 0
        if is_last and not self._lent:
            self._engine.close()
            self.completions.close()

    @property
    def is_open(self) -> bool:
        """Whether groups of the engine can still be created."""
        return self._members > 0 and os.getpid() == self._process


class Membership:
    """Membership of this process in a process group, with the engine's groups that it uses.

    Args:
        world: World whose engine the group uses.
        name: Name of the process group.
        ranks: Ranks of the group in the engine, in group order.
    """

    def __init__(self, world: World, name: str, ranks: Sequence[int]) -> None:
        self.completions = world.completions
        self.settings = world.settings
        self.group = world.group(name, ranks)
        self._world = world
        self._name = name
        self._ranks = ranks
        self._groups = [self.group]

    def sibling(self, purpose: str) -> _core.Group:
        """Create another group of the engine with the same ranks, and return it."""
        group = self._world.group(f"{self._name}/{purpose}", self._ranks)
        self._groups.append(group)
        return group

    def subgroup(self, purpose: str, ranks: Sequence[int]) -> _core.Group:
        """Create a group of the engine with some of the ranks, and return it.

        All ranks of the new group must call this method.

        Args:
            purpose: Part of the name of the new group.
            ranks: Ranks of the new group, numbered as in this group.
        """
        name = f"{self._name}/{purpose}/{'-'.join(map(str, ranks))}"
        group = self._world.group(name, [self._ranks[rank] for rank in ranks])
        self._groups.append(group)
        return group

    def groups(self) -> Sequence[_core.Group]:
        """Return all groups of the engine that this membership has created."""
        return tuple(self._groups)

    def leave(self) -> None:
        """Leave the group. Call this once."""
        self._world.leave(self._groups)


# World of the default group; torch.distributed has one default group in a process.
_default: World | None = None

_lent: LentEngine | None = None


def is_lent() -> bool:
    """Return whether the default group uses an engine that lend() has named."""
    return _lent is not None


def lend(engine: LentEngine | None) -> None:
    """Let the next default group use an engine that exists, or, with None, make its own again."""
    global _lent
    _lent = engine


def join(
    store: Store,
    *,
    name: str,
    rank: int,
    size: int,
    global_ranks: Sequence[int],
    seconds: float,
) -> Membership:
    """Join a group, in the default group's engine if that is open, otherwise in a new engine.

    Args:
        store: Store that PyTorch made for the group.
        name: Name of the group, the same on all of its ranks.
        rank: Rank of this process in the group.
        size: Number of ranks of the group.
        global_ranks: Global ranks of the group, in group order; empty for the default group.
        seconds: Longest time in seconds to wait for the other ranks, if a new engine must connect.

    Raises:
        PeerTimeoutError: Some ranks did not come; the message names them.
        AuthError: The ranks have different job keys.
    """
    global _default
    if global_ranks and _default is not None and _default.is_open:
        return _default.join(name, global_ranks)
    settings = Settings.from_environment()
    if not global_ranks and _lent is not None:
        _default = World(_lent, settings)
        return _default.join(name, range(size))
    limit = min(seconds, settings.connect_timeout_seconds)
    world = open_world(StoreMeeting(store=store, rank=rank, size=size, seconds=limit), settings)
    if not global_ranks:
        _default = world
    return world.join(name, range(size))


def open_world(meeting: StoreMeeting, settings: Settings) -> World:
    """Create an engine and connect it to the engines of all ranks; blocks until all have come.

    Raises:
        PeerTimeoutError: Some ranks did not come; the message names them.
        AuthError: The ranks have different job keys.
        ConfigError: SLIPSTREAM_TLS is 1 and no job key is set, or the ranks have different
            settings.
    """
    flight.arm(settings.flight_dir, meeting.rank, meeting.size)
    deadline = time.monotonic() + meeting.seconds
    generation = meeting.store.add(f"{meeting.rank}/lives", 1)
    key = _agree_on_key(meeting, generation, settings.load_job_key())
    runtime = _core.Runtime(
        rank=meeting.rank,
        world_size=meeting.size,
        epoch=generation,
        key=key,
        config=engine_config(settings, _store_host(meeting.store)),
    )
    try:
        roster = _exchange(meeting, generation, runtime.address(), key)
        _check_secrecy(meeting, settings)
        runtime.connect(roster, max(1.0, deadline - time.monotonic()))
        return World(OpenEngine(runtime, meeting.rank, settings.timeline), settings)
    except BaseException:
        runtime.close()
        raise


def _store_host(store: Store) -> str:
    """Return the store's host, which decides the network interface; "" for other stores."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store.host if isinstance(store, TCPStore) else ""


def _agree_on_key(meeting: StoreMeeting, generation: int, set_key: bytes | None) -> bytes:
    """Return the job key from the settings, or the random key that rank 0 draws and shares."""
    name = f"{generation}/key"
    if meeting.rank == 0:
        drawn = b"" if set_key else secrets.token_bytes(KEY_BYTES)
        meeting.store.set(name, drawn.hex())
        if drawn and generation == 1:
            _log.info(
                "no job key is set: rank 0 drew one and shares it through PyTorch's store, so all"
                " who can read that store can join the job; SLIPSTREAM_JOB_KEY sets a job key"
            )
        return set_key or drawn
    shared = bytes.fromhex(_read(meeting, name).decode())
    if bool(shared) == bool(set_key):
        meeting.store.set(_address_name(generation, meeting.rank), "")  # tells rank 0 of the error
        has, lacks = ("this rank", "rank 0") if set_key else ("rank 0", "this rank")
        raise AuthError(f"{has} was given a job key, {lacks} was not; {_ONE_KEY}")
    return set_key or shared


def _check_secrecy(meeting: StoreMeeting, settings: Settings) -> None:
    """Refuse TLS with a key that rank 0 has shared through the store, which is not encrypted.

    The check comes after the exchange, so ranks with other settings learn of it by comparison.
    """
    if settings.tls and meeting.size > 1 and settings.load_job_key() is None:
        raise ConfigError(
            f"rank {meeting.rank} has SLIPSTREAM_TLS=1 and no job key, so ranks would share a key"
            " through PyTorch's store, which is not encrypted; set SLIPSTREAM_JOB_KEY or"
            " SLIPSTREAM_KEY_FILE to the same secret on every rank, or start the ranks with"
            " `slipstream run`, which makes a key"
        )


def _address_name(generation: int, rank: int) -> str:
    return f"{generation}/address/{rank}"


def _signed(key: bytes, name: str, address: str) -> str:
    """Return an entry of the store: an address, with its signature by the job key."""
    return f"{address} {hmac.digest(key, f'{name} {address}'.encode(), 'sha256').hex()}"


def _exchange(meeting: StoreMeeting, generation: int, address: bytes, key: bytes) -> list[bytes]:
    """Publish the address of this rank, and return the addresses of all ranks."""
    names = [_address_name(generation, rank) for rank in range(meeting.size)]
    meeting.store.set(names[meeting.rank], _signed(key, names[meeting.rank], address.hex()))
    if meeting.rank == 0:
        roster = _roster(meeting, names, key)
        meeting.store.set(f"{generation}/roster", json.dumps(roster))
    else:
        roster = json.loads(_read(meeting, f"{generation}/roster", patience=2.0))
    if roster["missing"]:
        raise PeerTimeoutError(
            f"rank {', '.join(map(str, roster['missing']))} of {meeting.size} did not come to form"
            f" the group within {meeting.seconds:g} s (group number {generation} in this store);"
            f" check these processes, or raise {_LIMITS}"
        )
    if roster["strangers"]:
        raise AuthError(
            f"rank {', '.join(map(str, roster['strangers']))} of {meeting.size} was not given the"
            f" job key of rank 0; {_ONE_KEY}"
        )
    return [bytes.fromhex(text) for text in roster["addresses"]]


def _roster(meeting: StoreMeeting, names: Sequence[str], key: bytes) -> dict[str, Any]:
    """Wait for the addresses of all ranks; return the roster that rank 0 publishes."""
    missing = _missing(meeting, names)
    entries = [] if missing else [meeting.store.get(name).decode() for name in names]
    addresses = [entry.partition(" ")[0] for entry in entries]
    strangers = [
        rank
        for rank, entry in enumerate(entries)
        if not hmac.compare_digest(entry, _signed(key, names[rank], addresses[rank]))
    ]
    return {"missing": missing, "strangers": strangers, "addresses": addresses}


def _missing(meeting: StoreMeeting, names: Sequence[str]) -> list[int]:
    """Wait for the entries of all ranks; return the ranks whose entries did not come."""
    if _appeared(meeting, names, meeting.seconds):
        return []
    return [rank for rank, name in enumerate(names) if not meeting.store.check([name])]


def _read(meeting: StoreMeeting, name: str, *, patience: float = 1.0) -> bytes:
    """Return an entry of the store that rank 0 publishes.

    Args:
        meeting: Store, rank and time limit of the exchange.
        name: Name of the entry.
        patience: Factor by which the time limit is multiplied (default 1). With a factor above 1,
            this rank waits longer than rank 0, so it can read rank 0's entry about a timeout.

    Raises:
        PeerTimeoutError: Rank 0 did not publish the entry in time.
    """
    seconds = meeting.seconds * patience
    if not _appeared(meeting, [name], seconds):
        raise PeerTimeoutError(
            f"rank 0 did not come within {seconds:g} s (rank {meeting.rank} of {meeting.size}"
            f" waits for {name!r} in PyTorch's store); check rank 0, or raise {_LIMITS}"
        )
    return meeting.store.get(name)


def _appeared(meeting: StoreMeeting, names: Sequence[str], seconds: float) -> bool:
    """Wait until entries are in the store; return whether all of them came in time."""
    try:
        meeting.store.wait(list(names), timedelta(seconds=seconds))
    except DistNetworkError as error:
        raise PeerError(
            f"rank {meeting.rank} of {meeting.size} has lost the connection to PyTorch's store,"
            f" through which it finds the other ranks: {error}; check the process of the store"
            " (rank 0, or torchrun)"
        ) from error
    except RuntimeError:  # stores raise it at a timeout, or DistStoreError, which is a subclass
        return False
    return True
