"""From c10d's store to an engine that is connected to its peers.

    <rank>/lives              how many engines this rank has begun on this store: the generation
    <generation>/key          rank 0: the job key that it drew, or nothing where keys are set
    <generation>/address/<r>  each rank: where its engine listens, signed with its key
    <generation>/roster       rank 0: all addresses, or which ranks did not come or have other keys

A store outlives a process group, so all other keys carry the generation. Rank 0 collects and
publishes, so that n ranks read 2n keys and not n * n, and all of them hear who is missing.
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
from slipstream.comm.active import OpenEngine
from slipstream.comm.config import engine_config
from slipstream.errors import AuthError, PeerError, PeerTimeoutError
from slipstream.settings import Settings
from slipstream.torch.completions import Completions

KEY_BYTES = 32

_LIMITS = (
    "the timeout of init_process_group or SLIPSTREAM_CONNECT_TIMEOUT, the lower of which counts"
)

_ONE_KEY = "set SLIPSTREAM_JOB_KEY to the same value on every rank, or on none"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreMeeting:
    """Store, rank and time limit of the meeting of all ranks.

    Args:
        store: PyTorch's store, which all ranks share.
        rank: Rank of this process in the meeting.
        size: Number of ranks that meet.
        seconds: Longest wait for the other ranks.
    """

    store: Store
    rank: int
    size: int
    seconds: float


class World:
    """The engine of this process and the groups that share it; the last group to leave closes it.

    Args:
        engine: connected.
    """

    def __init__(self, engine: OpenEngine) -> None:
        self.completions = Completions(engine.runtime)
        self._engine = engine
        self._process = os.getpid()
        self._lock = threading.Lock()  # guards the next field
        self._members = 0

    def join(self, name: str, ranks: Sequence[int]) -> Membership:
        """Make a group; no communication.

        Args:
            name: equal on all members.
            ranks: The members' ranks in the engine, in group order.
        """
        with self._lock:
            self._members += 1
        return Membership(self, name, ranks)

    def group(self, name: str, ranks: Sequence[int]) -> _core.Group:
        """Make a group of the engine, which tells groups of one name apart by their order."""
        return self._engine.runtime.group(name, list(ranks))

    def leave(self, groups: Sequence[_core.Group]) -> None:
        """Close the groups, and the engine with the last. A forked child owns no engine."""
        if os.getpid() != self._process:
            return
        for group in groups:
            group.close()
        with self._lock:
            self._members -= 1
            last = self._members == 0
        if last:
            self._engine.close()
            self.completions.close()

    @property
    def open(self) -> bool:
        """Whether groups can still be made."""
        return self._members > 0 and os.getpid() == self._process


class Membership:
    """Share of one process group in the world.

    Args:
        world: World whose engine the group uses.
        name: Name of the group.
        ranks: The members' ranks in the engine, in group order.
    """

    def __init__(self, world: World, name: str, ranks: Sequence[int]) -> None:
        self.completions = world.completions
        self.group = world.group(name, ranks)
        self._world = world
        self._name = name
        self._ranks = ranks
        self._groups = [self.group]

    def sibling(self, purpose: str) -> _core.Group:
        """Make a group of the same ranks whose messages meet those of no other group."""
        group = self._world.group(f"{self._name}/{purpose}", self._ranks)
        self._groups.append(group)
        return group

    def groups(self) -> Sequence[_core.Group]:
        """Return the group of the engine and its siblings."""
        return tuple(self._groups)

    def leave(self) -> None:
        """Leave the group; to be called once."""
        self._world.leave(self._groups)


# The default group's: torch.distributed has one default group in a process.
_default: World | None = None


def join(
    store: Store,
    *,
    name: str,
    rank: int,
    size: int,
    global_ranks: Sequence[int],
    seconds: float,
) -> Membership:
    """Make a group, in the engine of the default group or, where it has none, in a new one.

    Args:
        store: Store that PyTorch made for the group.
        name: Name of the group, equal on all members.
        rank: Rank of this process in the group.
        size: Number of ranks of the group.
        global_ranks: Global ranks of the members, in group order; none means the default group.
        seconds: Longest wait for the other ranks if an engine must be connected.

    Raises:
        PeerTimeoutError: some ranks did not come; it names them.
        AuthError: the ranks were not given the same job key.
    """
    global _default
    if global_ranks and _default is not None and _default.open:
        return _default.join(name, global_ranks)
    settings = Settings.from_environment()
    limit = min(seconds, settings.connect_timeout_seconds)
    world = open_world(StoreMeeting(store=store, rank=rank, size=size, seconds=limit), settings)
    if not global_ranks:
        _default = world
    return world.join(name, range(size))


def open_world(meeting: StoreMeeting, settings: Settings) -> World:
    """Make an engine and connect it to the others and block until all are there.

    Raises:
        PeerTimeoutError: some ranks did not come; it names them.
        AuthError: the ranks were not given the same job key.
    """
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
        runtime.connect(roster, max(1.0, deadline - time.monotonic()))
        return World(OpenEngine(runtime, meeting.rank, settings.timeline))
    except BaseException:
        runtime.close()
        raise


def _store_host(store: Store) -> str:
    """Return the host that keeps the store, towards which peers are; empty where it is a file."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store.host if isinstance(store, TCPStore) else ""


def _agree_on_key(meeting: StoreMeeting, generation: int, given: bytes | None) -> bytes:
    """Return the key from the settings, else one that rank 0 draws and shares."""
    name = f"{generation}/key"
    if meeting.rank == 0:
        drawn = b"" if given else secrets.token_bytes(KEY_BYTES)
        meeting.store.set(name, drawn.hex())
        if drawn and generation == 1:
            _log.info(
                "no job key is set: rank 0 drew one and shares it through PyTorch's store, so the"
                " job is as safe as that store; SLIPSTREAM_JOB_KEY sets one"
            )
        return given or drawn
    shared = bytes.fromhex(_read(meeting, name).decode())
    if bool(shared) == bool(given):
        meeting.store.set(_address_name(generation, meeting.rank), "")  # so that rank 0 hears of it
        has, lacks = ("this rank", "rank 0") if given else ("rank 0", "this rank")
        raise AuthError(f"{has} was given a job key, {lacks} was not; {_ONE_KEY}")
    return given or shared


def _address_name(generation: int, rank: int) -> str:
    return f"{generation}/address/{rank}"


def _signed(key: bytes, name: str, address: str) -> str:
    """Return what a rank with this key writes under the name."""
    return f"{address} {hmac.digest(key, f'{name} {address}'.encode(), 'sha256').hex()}"


def _exchange(meeting: StoreMeeting, generation: int, address: bytes, key: bytes) -> list[bytes]:
    """Return the addresses of all ranks."""
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
            f" the group within {meeting.seconds:g} s (its life {generation} in this store); see"
            f" what these processes do, or raise {_LIMITS}"
        )
    if roster["strangers"]:
        raise AuthError(
            f"rank {', '.join(map(str, roster['strangers']))} of {meeting.size} was not given the"
            f" job key of rank 0; {_ONE_KEY}"
        )
    return [bytes.fromhex(text) for text in roster["addresses"]]


def _roster(meeting: StoreMeeting, names: Sequence[str], key: bytes) -> dict[str, Any]:
    """Wait for all ranks and return what rank 0 publishes of them."""
    missing = _missing(meeting, names)
    written = [] if missing else [meeting.store.get(name).decode() for name in names]
    addresses = [text.partition(" ")[0] for text in written]
    strangers = [
        rank
        for rank, text in enumerate(written)
        if not hmac.compare_digest(text, _signed(key, names[rank], addresses[rank]))
    ]
    return {"missing": missing, "strangers": strangers, "addresses": addresses}


def _missing(meeting: StoreMeeting, names: Sequence[str]) -> list[int]:
    """Wait for all names and return the ranks whose name is not there in time."""
    if _appeared(meeting, names, meeting.seconds):
        return []
    return [rank for rank, name in enumerate(names) if not meeting.store.check([name])]


def _read(meeting: StoreMeeting, name: str, *, patience: float = 1.0) -> bytes:
    """Return what rank 0 wrote; `patience` stretches the wait, to hear of rank 0's timeout."""
    seconds = meeting.seconds * patience
    if not _appeared(meeting, [name], seconds):
        raise PeerTimeoutError(
            f"rank 0 did not come within {seconds:g} s (rank {meeting.rank} of {meeting.size}"
            f" waits for {name!r} in PyTorch's store); see what rank 0 does, or raise {_LIMITS}"
        )
    return meeting.store.get(name)


def _appeared(meeting: StoreMeeting, names: Sequence[str], seconds: float) -> bool:
    """Wait until the names are in the store, and tell whether they came in time."""
    try:
        meeting.store.wait(list(names), timedelta(seconds=seconds))
    except DistNetworkError as error:
        raise PeerError(
            f"PyTorch's store, by which rank {meeting.rank} of {meeting.size} looks for the others,"
            f" is lost: {error}; see what the process does that keeps it (rank 0, or torchrun)"
        ) from error
    except RuntimeError:  # what stores raise at a timeout, DistStoreError or not
        return False
    return True
