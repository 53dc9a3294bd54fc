"""The part of a save that runs beside the training, on a thread of each rank.

Each rank writes its file, and then a note with the file's checksums and tensors. Rank 0 waits for
all notes, writes the manifest, deletes old checkpoints, and removes the notes, which tells the
other ranks that the save has ended. If a rank fails, its note has the error; rank 0 then leaves a
note for all ranks in place of the manifest. No collective runs, so the folder must be one that all
ranks see.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.errors import SlipstreamError, reason_of
from slipstream.train.checkpoint.catalog import read_manifest, remove_leftovers, retain
from slipstream.train.checkpoint.damage import CheckpointError
from slipstream.train.checkpoint.manifest import (
    MANIFEST,
    CheckpointManifest,
    SavedFile,
    SavedSlice,
    SavedTensor,
    checksums,
    file_name,
    folder_of,
)
from slipstream.train.checkpoint.merging import RankNote, merge_notes
from slipstream.train.checkpoint.storage import Storage, find_names, joined, read_whole
from slipstream.train.checkpoint.tensor_file import Layout, Piece
from slipstream.train.checkpoint.tree import Json

# After the end of the main thread, a rank waits for others no longer than this. The processes of a
# job end within seconds of each other, unless one of them was killed.
LAST_SECONDS = 30.0
_FIRST_POLL_SECONDS = 0.002

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveJob:
    """A save of one rank, without its data.

    Args:
        storage: Storage of all checkpoints.
        step: Training step after which the state was copied.
        time: Time of the copy in seconds since 1970 (UTC).
        save: Identity of the save, equal on all ranks and different from that of any other save.
        rank: Rank of this process.
        num_ranks: Number of ranks that save.
        keep: Number of whole checkpoints to keep; None keeps all.
        timeout_seconds: Longest wait for the other ranks.
    """

    storage: Storage
    step: int
    time: float
    save: str
    rank: int
    num_ranks: int
    keep: int | None
    timeout_seconds: float

    def note_of(self, rank: int) -> str:
        """Return the path of the note of a rank."""
        name = file_name(rank, self.num_ranks, self.save, "json")
        return joined(folder_of(self.step), name)

    @property
    def failure(self) -> str:
        """Path of the note by which rank 0 tells that the save has failed."""
        return joined(folder_of(self.step), f"failed.{self.save}.json")


def write_checkpoint(
    job: SaveJob, data: memoryview, layout: Layout, pieces: Sequence[Piece], state: Json
) -> None:
    """Write this rank's part of a checkpoint, and block until the checkpoint is whole.

    Args:
        job: Save that this rank takes part in.
        data: Content of this rank's file.
        layout: Places of the boxes in the file.
        pieces: Boxes in the file.
        state: Tree of the state.

    Raises:
        CheckpointError: This rank or another one could not write, or a rank did not end in time.
        MismatchError: The ranks have different states.
    """
    try:
        note = _write_file(job, data, layout, pieces, state)
    except OSError as error:
        folder = joined(job.storage.url, folder_of(job.step))
        note = RankNote(error=f"rank {job.rank} cannot write to {folder}: {reason_of(error)}")
    if job.num_ranks > 1:
        _write_json(job.storage, job.note_of(job.rank), note.as_json())
    if job.rank == 0:
        _finish(job, note)
    else:
        _wait_for_end(job)


def report_failure(job: SaveJob, error: Exception) -> None:
    """Tell the other ranks that this one has no state to write, so that they do not wait for it."""
    words = f"rank {job.rank} cannot save its state: {error!r}"
    try:
        if job.num_ranks > 1 and job.rank == 0:
            _write_json(job.storage, job.failure, {"error": words})
        elif job.num_ranks > 1:
            _write_json(job.storage, job.note_of(job.rank), RankNote(error=words).as_json())
    except OSError as failed:
        _log.warning("rank %d cannot tell the others that it failed: %s", job.rank, failed)


def _write_file(
    job: SaveJob, data: memoryview, layout: Layout, pieces: Sequence[Piece], state: Json
) -> RankNote:
    if not pieces and job.num_ranks > 1:
        return RankNote(state=state)
    name = file_name(job.rank, job.num_ranks, job.save, "safetensors")
    saved = SavedFile(name=name, num_bytes=len(data), checksums=checksums(data))
    job.storage.write(joined(folder_of(job.step), name), data)
    return RankNote(state=state, file=saved, tensors=tensors_of(pieces, layout.begins, file=0))


def tensors_of(pieces: Sequence[Piece], begins: Sequence[int], file: int) -> dict[str, SavedTensor]:
    """Return the description of the tensors whose boxes are in a file.

    Args:
        pieces: Boxes in the file.
        begins: Position of each box in the file.
        file: Index of the file in the manifest.
    """
    tensors: dict[str, SavedTensor] = {}
    for piece, begin in zip(pieces, begins, strict=True):
        place = SavedSlice(
            file=file, key=piece.key, begin=begin, offsets=piece.offsets, shape=piece.shape
        )
        earlier = tensors[piece.tensor].slices if piece.tensor in tensors else ()
        tensors[piece.tensor] = SavedTensor(
            dtype=piece.dtype, shape=piece.tensor_shape, slices=(*earlier, place)
        )
    return tensors


def _finish(job: SaveJob, own: RankNote) -> None:
    """Make the folder a checkpoint, or tell all ranks why it is none; only rank 0 calls this."""
    try:
        manifest = merge_notes(_all_notes(job, own), job.step, job.time, job.save)
        lost = {file.name for file in manifest.files} - set(job.storage.names(folder_of(job.step)))
        if lost:
            raise _disturbed(job, f"{', '.join(sorted(lost))} is gone")
        publish(job.storage, manifest, job.keep)
    except (OSError, SlipstreamError) as error:
        failed = error if isinstance(error, SlipstreamError) else CheckpointError(str(error))
        if job.num_ranks > 1:
            _write_json(job.storage, job.failure, {"error": str(failed)})
            _remove_notes(job)
        raise failed from error
    _remove_notes(job)


def _remove_notes(job: SaveJob) -> None:
    if job.num_ranks > 1:
        for rank in range(job.num_ranks):
            job.storage.remove(job.note_of(rank))


def publish(storage: Storage, manifest: CheckpointManifest, keep: int | None) -> None:
    """Write the manifest of a checkpoint whose files are safe, and delete old checkpoints.

    Args:
        storage: Storage of all checkpoints.
        manifest: Manifest of the checkpoint.
        keep: Number of whole checkpoints to keep; None keeps all.
    """
    name = joined(folder_of(manifest.step), MANIFEST)
    storage.write(name, memoryview(manifest.as_bytes()))
    try:
        remove_leftovers(storage, manifest)
        retain(storage, manifest.step, keep)
    except OSError as error:
        _log.warning(
            "the checkpoint of step %d is whole, but old ones cannot be deleted: %s",
            manifest.step,
            error,
        )


def _all_notes(job: SaveJob, own: RankNote) -> list[RankNote]:
    """Return the notes of all ranks; block until they are there."""
    notes = {0: own}
    folder = folder_of(job.step)
    names = {job.note_of(rank).rpartition("/")[2]: rank for rank in range(1, job.num_ranks)}

    def is_complete() -> bool:
        if job.num_ranks > 1 and job.storage.size(job.note_of(0)) is None:
            raise _disturbed(job, "the note of rank 0 is gone")
        missing = [name for name, rank in names.items() if rank not in notes]
        for name in find_names(job.storage, folder, missing):
            content = read_whole(job.storage, joined(folder, name))
            if content.endswith(b"\n"):  # a storage without renaming may show a part of it
                notes[names[name]] = RankNote.from_json(json.loads(content))
        return len(notes) == job.num_ranks

    def tell() -> str:
        missing = [str(rank) for rank in range(job.num_ranks) if rank not in notes]
        return f"rank {', '.join(missing)} did not write its part"

    _wait(job, is_complete, tell)
    return [notes[rank] for rank in range(job.num_ranks)]


def _wait_for_end(job: SaveJob) -> None:
    """Block until rank 0 has ended the save; only the other ranks call this."""
    own = job.note_of(job.rank)

    def has_failed() -> bool:
        return job.storage.size(job.failure) is not None

    _wait(
        job,
        lambda: job.storage.size(own) is None or has_failed(),
        lambda: "rank 0 did not write the manifest",
    )
    if has_failed():
        failure: Mapping[str, Any] = json.loads(read_whole(job.storage, job.failure))
        raise CheckpointError(failure["error"])
    try:
        is_own = read_manifest(job.storage, job.step).save == job.save
    except CheckpointError as error:
        raise _disturbed(job, str(error)) from error
    if not is_own:
        raise _disturbed(job, "the manifest belongs to another save")


def _disturbed(job: SaveJob, what: str) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint of step {job.step} in {job.storage.url} was disturbed: {what}; each job"
        " needs a folder of its own, because it removes unfinished saves of others"
    )


def _wait(job: SaveJob, is_done: Callable[[], bool], tell: Callable[[], str]) -> None:
    start = time.monotonic()
    deadline = start + job.timeout_seconds
    pause = _FIRST_POLL_SECONDS
    is_last = False
    while not is_done():
        if not is_last and not threading.main_thread().is_alive():
            is_last = True
            deadline = min(deadline, time.monotonic() + LAST_SECONDS)
        if time.monotonic() > deadline:
            raise CheckpointError(
                f"the checkpoint of step {job.step} in {job.storage.url} is not whole: {tell()} in"
                f" {time.monotonic() - start:.0f} s; all ranks must save to one folder that all see"
            )
        time.sleep(pause)
        pause = min(2 * pause, job.storage.poll_seconds)


def _write_json(storage: Storage, name: str, value: Any) -> None:
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    storage.write(name, memoryview(text.encode() + b"\n"))
