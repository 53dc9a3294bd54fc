"""Copies of each rank's part of a sharded state, in the memory of other ranks.

A part is what the rank would write to a checkpoint: the bytes of its file, and a note of what is in
them. So any number of ranks restores a state from the parts, as it does from files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.comm import worlds
from slipstream.comm.elastic import session
from slipstream.errors import MismatchError, SlipstreamError, UsageError
from slipstream.train.checkpoint.damage import CheckpointError
from slipstream.train.checkpoint.manifest import SavedFile
from slipstream.train.checkpoint.merging import RankNote, merge_notes
from slipstream.train.checkpoint.ranks import CommRanks
from slipstream.train.checkpoint.reading import Read, fill, plan_reads
from slipstream.train.checkpoint.restoring import RestorePlan
from slipstream.train.checkpoint.saving import tensors_of
from slipstream.train.checkpoint.sharding import pieces_of
from slipstream.train.checkpoint.snapshot import HostImage
from slipstream.train.checkpoint.tree import StateEncoder


class ShardsLostError(SlipstreamError):
    """Restart from a checkpoint, and ask for more copies: too many ranks were lost at once.

    Args:
        what: Description of what is lost.
    """

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. Pass a Checkpointer to attach(), or ask for more copies:"
            " ShardedState(copies=2)"
        )
        self.what = what


@dataclass(frozen=True, order=True, slots=True)
class _Version:
    """A commit, and the epoch whose ranks have divided it among each other."""

    commit: int
    epoch: int


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of one rank: its note as JSON, and the bytes of its file."""

    note: bytes
    data: np.ndarray


@dataclass(frozen=True, slots=True)
class _Held:
    """The parts of a version that this rank has, by the rank of the version's epoch."""

    rank: int  # of this process
    num_ranks: int
    parts: dict[int, _Part]
    image: HostImage  # the memory of this rank's own part

    def memory_of_others(self) -> list[np.ndarray]:
        return [part.data for rank, part in self.parts.items() if rank != self.rank]


@dataclass(frozen=True, slots=True)
class _Providers:
    """A version that is restored, and the present rank that provides each part of it."""

    version: _Version
    providers: list[int]


class PeerCopies:
    """The parts of the last two commits that this rank keeps: its own, and those of others.

    Args:
        copies: Number of other ranks that keep each part, 0 or more. They are on other hosts, if
            there are any.
    """

    def __init__(self, copies: int) -> None:
        self._copies = copies
        self._held: dict[_Version, _Held] = {}
        self._spare: list[_Held] = []  # memory that is used again

    def keep(self, commit: int, state: dict[str, Any]) -> None:
        """Keep this rank's part of a state, and send it to others; all ranks call this; blocks.

        Args:
            commit: Number of the commit.
            state: State, as `Checkpointer.save` takes it.
        """
        group = worlds.world()
        group.barrier(name="copies of the last commit")
        # All ranks have ended the last keep(), so what was kept before it is not needed any more.
        self._forget({max(self._held)} if self._held else set())
        spare = self._spare.pop() if self._spare else None
        image = HostImage() if spare is None else spare.image
        own = _own_part(state, image)
        sizes = group.all_gather(np.array([len(own.note), len(own.data)]), name="sizes of parts")
        room = [] if spare is None else spare.memory_of_others()
        parts = {group.rank: own}
        hosts = [member.host for member in session().epoch.members]
        for shift in shifts(hosts, self._copies):
            source = (group.rank - shift) % group.size
            parts[source] = _pass_on(own, shift, sizes[source].tolist(), room)
        version = _Version(commit, session().epoch.number)
        self._held[version] = _Held(group.rank, group.size, parts, image)

    def forget_after(self, commit: int) -> None:
        """Forget all later commits than one."""
        self._forget({version for version in self._held if version.commit <= commit})

    def restore(self, commit: int, state: dict[str, Any]) -> bool:
        """Fill a state from the parts of a commit; all ranks call this; blocks.

        Args:
            commit: Number of the commit, the same on all ranks.
            state: State, as `Checkpointer.restore` takes it.

        Returns:
            Whether the commit was kept; if no rank has any part of it, the state stays as it is.

        Raises:
            ShardsLostError: no rank that is left has the parts of some ranks.
            MismatchError: the commit has other values or tensors than the state.
        """
        ranks = CommRanks(worlds.world())
        mine = [
            [version.commit, version.epoch, held.num_ranks, sorted(held.parts)]
            for version, held in self._held.items()
        ]
        source = choose(commit, [json.loads(each) for each in ranks.gather(json.dumps(mine))])
        if source is None:
            return False
        provided = [old for old, rank in enumerate(source.providers) if rank == ranks.rank]
        parts = {old: self._held[source.version].parts[old] for old in provided}
        _restore(source, parts, state, ranks)
        return True

    def _forget(self, but: set[_Version]) -> None:
        for version in set(self._held) - but:
            self._spare.append(self._held.pop(version))
        del self._spare[1:]  # each keep() needs the memory of one


def shifts(hosts: Sequence[str], copies: int) -> list[int]:
    """Return how far each part is sent: rank r's part to rank r + shift, for each shift.

    The same shifts hold for all ranks, so that all keep equally many parts. Those come first that
    lead to another host from the most ranks.

    Args:
        hosts: Host of each rank.
        copies: Number of copies of each part; at most the number of other ranks are made.
    """
    size = len(hosts)

    def same_hosts(shift: int) -> int:
        return sum(hosts[rank] == hosts[(rank + shift) % size] for rank in range(size))

    return sorted(range(1, size), key=lambda shift: (same_hosts(shift), shift))[:copies]


def choose(commit: int, held: Sequence[Sequence[Any]]) -> _Providers | None:
    """Return the newest version of a commit of which all parts are there; None if it has none.

    Args:
        commit: Number of the commit.
        held: Versions that each present rank has: commit, epoch, number of ranks of the epoch, and
            the ranks whose parts it has.

    Raises:
        ShardsLostError: parts are missing of all versions of the commit.
    """
    versions = {(v[1], v[2]) for each in held for v in each if v[0] == commit}
    lost = ""
    for epoch, num_ranks in sorted(versions, reverse=True):
        loads = [0] * len(held)
        providers: list[int] = []
        for old in range(num_ranks):
            has = [
                rank
                for rank, each in enumerate(held)
                if any(v[:2] == [commit, epoch] and old in v[3] for v in each)
            ]
            if not has:
                break
            providers.append(min(has, key=lambda rank: (loads[rank], rank)))
            loads[providers[-1]] += 1
        if len(providers) == num_ranks:
            return _Providers(_Version(commit, epoch), providers)
        lost = lost or f"that of rank {len(providers)} of the {num_ranks} ranks of epoch {epoch}"
    if lost:
        raise ShardsLostError(
            f"commit {commit} cannot be restored from the {len(held)} ranks that are left: nobody"
            f" has all parts of it, for example {lost}"
        )
    return None


def _own_part(state: dict[str, Any], image: HostImage) -> _Part:
    group = worlds.world()
    encoder = StateEncoder(rank=group.rank)
    tree = encoder.encode(dict(state))
    pieces = pieces_of(encoder.leaves, group.rank, group.size)
    layout = image.take(pieces)
    data = np.frombuffer(image.data, np.uint8)
    boxes = [piece for piece, _ in pieces]
    note = RankNote(
        state=tree,
        file=SavedFile(name=str(group.rank), num_bytes=data.size, checksums=()),
        tensors=tensors_of(boxes, layout.begins, file=0),
    )
    return _Part(json.dumps(note.as_json(), allow_nan=False).encode(), data)


def _pass_on(own: _Part, shift: int, sizes: Sequence[int], room: list[np.ndarray]) -> _Part:
    """Send this rank's part to one rank, and return that of another one.

    Args:
        own: Part of this rank.
        shift: Distance to the rank that gets it.
        sizes: Bytes of the note and of the file of the rank whose part comes.
        room: Arrays that may be used again.
    """
    group = worlds.world()
    received: list[np.ndarray] = []
    fitting = [index for index, array in enumerate(room) if array.size == sizes[1]]
    out = room.pop(fitting[0]) if fitting else np.empty(sizes[1], np.uint8)
    for sent, size, target in (
        (np.frombuffer(own.note, np.uint8), sizes[0], np.empty(sizes[0], np.uint8)),
        (own.data, sizes[1], out),
    ):
        counts = np.zeros((2, group.size), np.int64)
        counts[0, (group.rank + shift) % group.size] = sent.size
        counts[1, (group.rank - shift) % group.size] = size
        received.append(
            group.all_to_all_v(sent, *counts.tolist(), out=target, name="copies of parts")
        )
    return _Part(received[0].tobytes(), received[1])


def _restore(
    source: _Providers, provided: dict[int, _Part], state: dict[str, Any], ranks: CommRanks
) -> None:
    """Fill a state from the parts of all providers; see `PeerCopies.restore`."""
    notes: dict[int, Any] = {}
    mine = {old: part.note.decode() for old, part in provided.items()}
    for text in ranks.gather(json.dumps(mine)):
        notes |= {int(old): json.loads(note) for old, note in json.loads(text).items()}
    problem, plan, reads = "", None, dict[int, list[Read]]()
    try:
        in_order = [RankNote.from_json(notes[old]) for old in range(len(source.providers))]
        manifest = merge_notes(in_order, step=source.version.commit, time=0.0, save="")
        plan = RestorePlan(manifest=manifest, rank=ranks.rank)
        plan.add_state(state)
        reads = plan_reads(manifest, plan.targets)
    except (UsageError, CheckpointError) as error:
        problem = str(error)
    wanted = {old: [(read.begin, read.num_bytes) for read in reads.get(old, [])] for old in reads}
    answers = [
        json.loads(each)
        for each in ranks.gather(json.dumps({"problem": problem, "wanted": wanted}))
    ]
    for rank, answer in enumerate(answers):
        if answer["problem"]:
            raise MismatchError(f"rank {rank}: {answer['problem']}")
    assert plan is not None, "there was no problem"
    _move(source, provided, reads, [answer["wanted"] for answer in answers])
    for change in plan.changes:
        change()


def _move(
    source: _Providers,
    provided: dict[int, _Part],
    reads: dict[int, list[Read]],
    wanted: Sequence[dict[str, list[tuple[int, int]]]],
) -> None:
    """Exchange what all ranks want of all parts, and fill the targets of this rank."""
    group = worlds.world()
    chunks: list[np.ndarray] = []
    to_each = [0] * group.size
    for rank, wants in enumerate(wanted):
        for old, part in provided.items():
            for begin, size in wants.get(str(old), []):
                chunks.append(part.data[begin : begin + size])
                to_each[rank] += size
    from_each = [0] * group.size
    for old, rank in enumerate(source.providers):
        from_each[rank] += sum(read.num_bytes for read in reads.get(old, []))
    sent = np.concatenate(chunks) if chunks else np.empty(0, np.uint8)
    received = group.all_to_all_v(sent, to_each, from_each, name="parts of a commit")
    begins = np.cumsum([0, *from_each[:-1]]).tolist()
    for old, rank in enumerate(source.providers):
        stretch = _Stretch(received, begins[rank])
        fill(reads.get(old, []), stretch)
        begins[rank] = stretch.position


class _Stretch:
    """Received bytes, which are read in the order in which they were wanted."""

    def __init__(self, data: np.ndarray, position: int) -> None:
        self._data = data
        self.position = position

    def read(self, begin: int, target: memoryview) -> None:
        """Fill the target with the next bytes; they are those of the file from `begin` on."""
        end = self.position + len(target)
        np.frombuffer(target, np.uint8)[:] = self._data[self.position : end]
        self.position = end
