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
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from slipstream.errors import SlipstreamError, reason_of
from slipstream.train.checkpoint.catalog import Retention, read_manifest
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
from slipstream.train.checkpoint.save_job import SaveJob, wait_for
from slipstream.train.checkpoint.storage import Storage, find_names, joined, read_whole
from slipstream.train.checkpoint.tensor_file import Layout, Piece
from slipstream.train.checkpoint.tree import Json

_log = logging.getLogger(__name__)


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
    except Exception as error:  # noqa: BLE001  the other ranks wait for the note
        folder = joined(job.storage.url, folder_of(job.step))
        note = RankNote(error=f"rank {job.rank} cannot write to {folder}: {_reason(error)}")
    if job.rank == 0:
        _finish(job, note)
    else:
        _write_json(job.storage, job.note_of(job.rank), note.as_json())
        _wait_for_end(job)


def report_failure(job: SaveJob, error: Exception) -> None:
    """Tell the other ranks that this one has no state to write, so that they do not wait for it."""
    words = f"rank {job.rank} cannot save its state: {error!r}"
    try:
        if job.num_ranks > 1 and job.rank == 0:
            _write_json(job.storage, job.end_note, {"error": words})
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
        if job.num_ranks > 1:
            _write_json(job.storage, job.note_of(0), own.as_json())
        manifest = merge_notes(_all_notes(job, own), job.step, job.time, job.save)
        lost = {file.name for file in manifest.files} - set(job.storage.names(folder_of(job.step)))
        if lost:
            raise _disturbed(job, f"{', '.join(sorted(lost))} is gone")
        publish(job.storage, manifest, job.keep, job.timeout_seconds)
    except Exception as error:
        failed = error if isinstance(error, SlipstreamError) else job.not_whole(_reason(error))
        _tell_end(job, str(failed))
        raise failed from error
    _tell_end(job, "")


def _reason(error: Exception) -> str:
    return reason_of(error) if isinstance(error, OSError) else repr(error)


def _tell_end(job: SaveJob, problem: str) -> None:
    """Tell the other ranks that the save has ended, by the absence of their notes.

    An error here changes nothing about the checkpoint, so it is logged.

    Args:
        job: Save that has ended.
        problem: Reason why it has failed; "" if the checkpoint is whole.
    """
    if job.num_ranks == 1:
        return
    errors: list[OSError] = []

    def could(change: Callable[[], object]) -> bool:
        try:
            change()
        except OSError as error:
            errors.append(error)
            return False
        return True

    def write_end() -> None:
        _write_json(job.storage, job.end_note, {"error": problem})

    is_told = bool(problem) and could(write_end)
    notes = [job.note_of(rank) for rank in range(job.num_ranks)]
    num_left = sum(not could(partial(job.storage.remove, note)) for note in notes)
    # A full disk has room for the end once the notes are gone; ranks whose notes are still there
    # find the end of a save that has succeeded, too.
    if not is_told and (problem or num_left > 0):
        could(write_end)
    if errors:
        _log.warning(
            "the save of step %d has ended, but its notes cannot be changed: %s",
            job.step,
            errors[0],
        )


def publish(
    storage: Storage, manifest: CheckpointManifest, keep: int | None, quiet_seconds: float
) -> None:
    """Write the manifest of a checkpoint whose files are safe, and delete old checkpoints.

    An error after the manifest is there is logged, because the checkpoint is whole.

    Args:
        storage: Storage of all checkpoints.
        manifest: Manifest of the checkpoint.
        keep: Number of whole checkpoints to keep; None keeps all.
        quiet_seconds: Time without a change after which an unfinished save of another job is dead.

    Raises:
        OSError: The manifest cannot be written.
    """
    replaced = _save_of(storage, manifest.step)
    try:
        storage.write(joined(folder_of(manifest.step), MANIFEST), memoryview(manifest.as_bytes()))
    except OSError as error:
        if _save_of(storage, manifest.step) != manifest.save:
            raise
        _log.warning(
            "the checkpoint of step %d is whole, but may not survive a crash of the machine, so no"
            " old one is deleted: %s",
            manifest.step,
            error,
        )
        return
    try:
        Retention(
            storage=storage,
            manifest=manifest,
            replaced=replaced,
            keep=keep,
            quiet_seconds=quiet_seconds,
        ).apply()
    except Exception as error:  # noqa: BLE001  the checkpoint is whole, whatever fails here
        _log.warning(
            "the checkpoint of step %d is whole, but old ones cannot be deleted: %s",
            manifest.step,
            error,
        )


def _save_of(storage: Storage, step: int) -> str:
    """Return the identity of the save whose checkpoint a step has; "" if there is no such one."""
    try:
        return read_manifest(storage, step).save
    except (CheckpointError, OSError):
        return ""


def _all_notes(job: SaveJob, own: RankNote) -> list[RankNote]:
    """Return the notes of all ranks; block until they are there."""
    notes = {0: own}
    folder = folder_of(job.step)
    names = {job.note_of(rank).rpartition("/")[2]: rank for rank in range(1, job.num_ranks)}

    def is_complete() -> bool:
        if job.num_ranks > 1 and job.storage.size(job.note_of(0)) is None:
            raise _disturbed(job, "the note of rank 0 is gone")
        awaited = [name for name, rank in names.items() if rank not in notes]
        for name in find_names(job.storage, folder, awaited):
            content = read_whole(job.storage, joined(folder, name))
            if content.endswith(b"\n"):  # a storage without renaming may show a part of it
                notes[names[name]] = RankNote.from_json(json.loads(content))
        return len(notes) == job.num_ranks

    def missing() -> list[int]:
        return [rank for rank in range(job.num_ranks) if rank not in notes]

    wait_for(job, is_complete, missing, "did not write its part")
    return [notes[rank] for rank in range(job.num_ranks)]


def _wait_for_end(job: SaveJob) -> None:
    """Block until rank 0 has ended the save; only the other ranks call this."""
    own = job.note_of(job.rank)
    problem: str | None = None

    def has_ended() -> bool:
        nonlocal problem
        is_gone = job.storage.size(own) is None
        problem = _end_note(job)
        if problem is None and is_gone:
            _check_published(job)
        return is_gone or problem is not None

    try:
        wait_for(job, has_ended, lambda: [0], "did not write the manifest")
    except CheckpointError:
        if _save_of(job.storage, job.step) != job.save:
            raise
    if problem:
        raise CheckpointError(problem)


def _end_note(job: SaveJob) -> str | None:
    """Return the problem of which rank 0 tells, "" for none; None if there is no such note."""
    try:
        content = read_whole(job.storage, job.end_note)
    except FileNotFoundError:
        return None
    # A storage without renaming may show a part of it.
    return json.loads(content)["error"] if content.endswith(b"\n") else None


def _check_published(job: SaveJob) -> None:
    """Check that the manifest is there, as rank 0 says by the removal of the notes."""
    try:
        is_own = read_manifest(job.storage, job.step).save == job.save
    except CheckpointError as error:
        raise _disturbed(job, str(error)) from error
    if not is_own:
        raise _disturbed(job, "the manifest belongs to another save")


def _disturbed(job: SaveJob, what: str) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint of step {job.step} in {job.storage.url} was disturbed: {what}; each job"
        " needs a folder of its own"
    )


def _write_json(storage: Storage, name: str, value: Any) -> None:
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    storage.write(name, memoryview(text.encode() + b"\n"))
