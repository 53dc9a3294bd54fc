"""The manifest of a checkpoint from the notes of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import prod
from typing import Any

from slipstream.errors import MismatchError
from slipstream.train.checkpoint.damage import CheckpointError
from slipstream.train.checkpoint.division import is_tiled
from slipstream.train.checkpoint.manifest import (
    CheckpointManifest,
    SavedFile,
    SavedTensor,
    saved_file,
    saved_tensor,
)
from slipstream.train.checkpoint.tree import Json, merge, tensor_names


@dataclass(frozen=True, kw_only=True, slots=True)
class RankNote:
    """A rank's part of a checkpoint: its file, the tensors in it, and the tree of its state.

    Args:
        error: Reason why the rank could not write its file; "" if it could.
        state: Tree of the state on this rank.
        file: File of this rank, or None if the rank writes no tensors.
        tensors: Tensors with the boxes that are in the file. The index of the file is 0.
    """

    error: str = ""
    state: Json = None
    file: SavedFile | None = None
    tensors: dict[str, SavedTensor] = field(default_factory=dict[str, SavedTensor])

    def as_json(self) -> dict[str, Any]:
        """Return the note as JSON."""
        return {
            "error": self.error,
            "state": self.state,
            "file": None if self.file is None else self.file.as_json(),
            "tensors": {name: tensor.as_json() for name, tensor in self.tensors.items()},
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> RankNote:
        """Return the note that a rank has written."""
        file = None if fields["file"] is None else saved_file(fields["file"])
        tensors = {name: saved_tensor(entry) for name, entry in fields["tensors"].items()}
        return cls(error=fields["error"], state=fields["state"], file=file, tensors=tensors)


def merge_notes(notes: Sequence[RankNote], step: int, time: float, save: str) -> CheckpointManifest:
    """Return the manifest of a checkpoint.

    Args:
        notes: Notes of all ranks, in their order.
        step: Training step after which the state was saved.
        time: Time of the save in seconds since 1970 (UTC).
        save: Identity of the save.

    Raises:
        CheckpointError: A rank could not write its file.
        MismatchError: The ranks have different values or tensors.
    """
    errors = [note.error for note in notes if note.error]
    if errors:
        raise CheckpointError(f"the checkpoint of step {step} is not whole: {'; '.join(errors)}")
    state = reduce(
        lambda tree, rank: merge(tree, notes[rank].state, rank),
        range(1, len(notes)),
        notes[0].state,
    )
    files: list[SavedFile] = []
    tensors: dict[str, SavedTensor] = {}
    for rank, note in enumerate(notes):
        for name, tensor in note.tensors.items():
            _add(tensors, name, _moved(tensor, len(files)), rank)
        if note.file is not None:
            files.append(note.file)
    _check_cover(tensors, state)
    return CheckpointManifest(
        step=step,
        time=time,
        num_ranks=len(notes),
        save=save,
        files=tuple(files),
        tensors=tensors,
        state=state,
    )


def _moved(tensor: SavedTensor, file: int) -> SavedTensor:
    return replace(tensor, slices=tuple(replace(box, file=file) for box in tensor.slices))


def _add(tensors: dict[str, SavedTensor], name: str, tensor: SavedTensor, rank: int) -> None:
    first = tensors.setdefault(name, replace(tensor, slices=()))
    if (first.dtype, first.shape) != (tensor.dtype, tensor.shape):
        raise MismatchError(
            f"the tensor {name!r} is {tensor.dtype} {list(tensor.shape)} on rank {rank}, but"
            f" {first.dtype} {list(first.shape)} on an earlier rank; all ranks must pass the same"
            " tensors, or PerRank(tensor)"
        )
    tensors[name] = replace(first, slices=(*first.slices, *tensor.slices))


def _check_cover(tensors: dict[str, SavedTensor], state: Json) -> None:
    for name in tensor_names(state):
        if name not in tensors:
            raise MismatchError(f"no rank wrote the tensor {name!r}; rank 0 must be in its mesh")
    for name, tensor in tensors.items():
        if not is_tiled(tensor.shape, ((box.offsets, box.shape) for box in tensor.slices)):
            written = sum(prod(box.shape) for box in tensor.slices)
            raise MismatchError(
                f"the ranks wrote {written} of {prod(tensor.shape)} elements of the tensor"
                f" {name!r} in {len(tensor.slices)} parts, which leave gaps or overlap; all ranks"
                " must pass the same tensors in the same order, or PerRank(tensor)"
            )
