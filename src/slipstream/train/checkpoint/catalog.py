"""The checkpoints in a folder: which are whole, why the others are not, and which are kept."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass

from slipstream.errors import UsageError
from slipstream.train.checkpoint.checked_file import CheckedFile
from slipstream.train.checkpoint.damage import CheckpointError
from slipstream.train.checkpoint.manifest import (
    MANIFEST,
    CheckpointManifest,
    folder_of,
    parse_manifest,
    step_of,
)
from slipstream.train.checkpoint.storage import Storage, joined, read_whole
from slipstream.train.checkpoint.validity import check_manifest

# How the names of all files begin that saves write, the unfinished ones included.
_NAMES_OF_SAVES = (MANIFEST, "rank-", "failed.")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A folder of a step, which is a whole checkpoint or not.

    Args:
        step: Training step after which the state was saved.
        folder: Name of the folder.
        problem: Reason why the checkpoint is not whole; "" if it is whole.
        num_bytes: Size of all files in bytes; 0 without a valid manifest.
        num_ranks: Number of ranks that saved; 0 without a valid manifest.
        time: Time of the save in seconds since 1970 (UTC); 0 without a valid manifest.
    """

    step: int
    folder: str
    problem: str
    num_bytes: int
    num_ranks: int
    time: float

    @property
    def is_whole(self) -> bool:
        """Whether all files exist and have their sizes and, if verified, their checksums."""
        return not self.problem


def steps_in(storage: Storage) -> list[int]:
    """Return the steps that have a folder, whole or not, the newest first."""
    steps = (step_of(name) for name in storage.names())
    return sorted((step for step in steps if step is not None), reverse=True)


def read_manifest(storage: Storage, step: int) -> CheckpointManifest:
    """Return the manifest of a step.

    Raises:
        CheckpointError: There is no manifest, or it is damaged.
    """
    name = joined(folder_of(step), MANIFEST)
    try:
        content = read_whole(storage, name)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{joined(storage.url, name)} does not exist: the save did not end"
        ) from error
    manifest = parse_manifest(content, joined(storage.url, name))
    check_manifest(manifest, joined(storage.url, name))
    if manifest.step != step:
        raise CheckpointError(
            f"{joined(storage.url, name)} is the manifest of step {manifest.step}; the folder was"
            " renamed"
        )
    return manifest


def check_files(storage: Storage, manifest: CheckpointManifest, *, verify: bool) -> None:
    """Check that all files of a checkpoint exist and have their sizes.

    Args:
        storage: Storage of all checkpoints.
        manifest: Manifest of the checkpoint.
        verify: Whether to read all files and to compare their checksums, too.

    Raises:
        CheckpointError: A file is missing, or has another size or another checksum.
    """
    for file in manifest.files:
        name = joined(folder_of(manifest.step), file.name)
        size = storage.size(name)
        if size != file.num_bytes:
            found = "does not exist" if size is None else f"has {size} bytes"
            raise CheckpointError(
                f"{joined(storage.url, name)} {found}; expected: {file.num_bytes} bytes"
            )
        if verify:
            with CheckedFile(storage, name, file) as checked:
                checked.verify()


def look_at(storage: Storage, step: int, *, verify: bool = False) -> Checkpoint:
    """Return whether the checkpoint of a step is whole, and why not.

    Args:
        storage: Storage of all checkpoints.
        step: Step that has a folder.
        verify: Whether to read all files and to compare their checksums (default False).
    """
    manifest: CheckpointManifest | None = None
    problem = ""
    try:
        manifest = read_manifest(storage, step)
        check_files(storage, manifest, verify=verify)
    except (CheckpointError, OSError) as error:
        problem = str(error)
    return Checkpoint(
        step=step,
        folder=folder_of(step),
        problem=problem,
        num_bytes=manifest.num_bytes if manifest else 0,
        num_ranks=manifest.num_ranks if manifest else 0,
        time=manifest.time if manifest else 0.0,
    )


def list_checkpoints(storage: Storage, *, verify: bool = False) -> list[Checkpoint]:
    """Return the checkpoints of a folder, whole or not, the newest first.

    Args:
        storage: Storage of all checkpoints.
        verify: Whether to read all files and to compare their checksums (default False).

    Raises:
        UsageError: The folder does not exist or has no checkpoints.
    """
    steps = steps_in(storage)
    if not steps:
        raise UsageError(f"{storage.url} has no checkpoints; their folders are named step-00001200")
    return [look_at(storage, step, verify=verify) for step in steps]


def has_manifest(storage: Storage, step: int) -> bool:
    """Return whether a step has a manifest, damaged or not; True if the storage cannot tell."""
    try:
        return storage.size(joined(folder_of(step), MANIFEST)) is not None
    except OSError:
        return True


def delete_checkpoint(storage: Storage, step: int) -> None:
    """Delete a checkpoint: its manifest first, so that no part of it is ever taken for whole."""
    storage.remove_folder(folder_of(step), first=MANIFEST)


def newest_later_step(storage: Storage, step: int) -> int | None:
    """Return the newest step after a step that has a whole checkpoint, or None."""
    later = (each for each in steps_in(storage) if each > step)
    return next((each for each in later if look_at(storage, each).is_whole), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Retention:
    """The rules by which a job deletes files after a save. No rank of the job may be writing.

    An unfinished save of another job is left alone as long as it may be live. It is dead if nothing
    of it has changed for longer than a save may take, because those of its ranks that have written
    have given up then. A storage that tells no times cannot say so: there every unfinished save
    counts as dead, because saves that were killed are more frequent than two jobs in one folder,
    and what they leave would fill the storage.

    Args:
        storage: Storage of all checkpoints.
        manifest: Manifest of the checkpoint that was just written.
        replaced: Identity of the save whose checkpoint this one has replaced; "" if there was none.
        keep: Number of whole checkpoints to keep up to the step of the manifest, 1 or more; None
            keeps all.
        quiet_seconds: Time without a change after which an unfinished save of another job is dead.
    """

    storage: Storage
    manifest: CheckpointManifest
    replaced: str
    keep: int | None
    quiet_seconds: float

    def apply(self) -> list[int]:
        """Delete what is old or dead, and return the steps whose folders were deleted."""
        dead_since = self._dead_since()
        self._remove_leftovers(dead_since)
        return self._delete_steps(dead_since)

    def _dead_since(self) -> float | None:
        """Return the time after which a live save has changed; None if the storage has no times.

        The time of the manifest is the present time of the storage's clock.
        """
        name = joined(folder_of(self.manifest.step), MANIFEST)
        now = self.storage.changed(name)
        if now is None and self.storage.size(name) is None:
            return -math.inf  # somebody has deleted the manifest, so nothing is known to be dead
        return None if now is None else now - self.quiet_seconds

    def _remove_leftovers(self, dead_since: float | None) -> None:
        """Remove files in the step's folder that belong neither to its checkpoint nor to its save.

        They were left by saves of the step that were killed, or by the checkpoint that this one has
        replaced. Files of other programs stay.
        """
        folder = folder_of(self.manifest.step)
        names = [
            name
            for name in self.storage.names(folder)
            if name != MANIFEST and f".{self.manifest.save}." not in name and _is_of_save(name)
        ]
        others = {name for name in names if not self._is_own(name)}
        are_dead = self._are_dead(folder, others, dead_since)
        for name in names:
            if name not in others or are_dead:
                self.storage.remove(joined(folder, name))

    def _delete_steps(self, dead_since: float | None) -> list[int]:
        """Delete old checkpoints and dead unfinished saves of other steps.

        A checkpoint with a manifest that is damaged, or that cannot be read now, stays until `keep`
        newer ones are whole. Whole checkpoints of later steps stay, and so does a folder without a
        manifest that has files of other programs: LitGPT gives its checkpoints the same names. If a
        folder cannot be deleted, the others are deleted all the same.
        """
        num_whole = 0
        deleted: list[int] = []
        for step in steps_in(self.storage):
            checkpoint = look_at(self.storage, step)
            is_old = self.keep is not None and num_whole >= self.keep
            num_whole += checkpoint.is_whole and step <= self.manifest.step
            try:
                has_ended = has_manifest(self.storage, step)
                is_obsolete = is_old if has_ended else self._is_dead(step, dead_since)
                if is_obsolete and step != self.manifest.step:
                    delete_checkpoint(self.storage, step)
                    deleted.append(step)
                    _log.info("deleted step %d: %s", step, checkpoint.problem or "it is old")
            except OSError as error:
                _log.warning("step %d cannot be deleted: %s", step, error)
        return deleted

    def _is_dead(self, step: int, dead_since: float | None) -> bool:
        """Return whether a folder without a manifest has nothing but files of dead saves."""
        folder = folder_of(step)
        names = self.storage.names(folder)
        if not all(map(_is_of_save, names)):
            return False
        others = [name for name in names if not self._is_own(name)]
        if names and not others:
            return True
        changed = self.storage.changed(folder)  # a save may have made the folder, and no file yet
        is_quiet = changed is None or dead_since is None or changed < dead_since
        is_dead = is_quiet and self._are_dead(folder, others, dead_since)
        if not is_dead:
            _log.info(
                "step %d stays: it is unfinished, and another job may be saving it; each job needs"
                " a folder of its own",
                step,
            )
        return is_dead

    def _are_dead(self, folder: str, names: Iterable[str], dead_since: float | None) -> bool:
        """Return whether nothing of unfinished saves of other jobs has changed for long."""
        if dead_since is None:
            return True
        times = [self.storage.changed(joined(folder, name)) for name in names]
        return all(time is not None and time < dead_since for time in times)

    def _is_own(self, name: str) -> bool:
        """Return whether an earlier save of this job wrote a file, or the replaced checkpoint's."""
        session = self.manifest.save.rpartition("-")[0]
        return f".{session}-" in name or bool(self.replaced and f".{self.replaced}." in name)


def _is_of_save(name: str) -> bool:
    return name.startswith(_NAMES_OF_SAVES)
