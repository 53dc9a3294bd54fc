"""The model files that replicas serve: a copy of each state, so that all replicas serve the same.

A copy is called a generation. Replicas that start later read the same bytes as the first one, also
if the user's file has changed in between or is being written.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from slipstream.errors import UsageError, reason_of
from slipstream.serve.repository import ModelSpec

Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Generation:
    """A state of the model files.

    Args:
        number: Number of the state, counted from 1.
        folder: Folder of the copies.
        models: Versions of the models, with the paths of the copies.
        digest: Digest of the contents, 16 hexadecimal digits.
    """

    number: int
    folder: Path
    models: tuple[ModelSpec, ...]
    digest: str


class ModelFiles:
    """The user's model files.

    Args:
        models: Versions of the models, with the paths of the user's files.
        folder: Private folder for the copies.
    """

    def __init__(self, models: Sequence[ModelSpec], folder: Path) -> None:
        self._models, self._folder = tuple(models), folder
        self._taken = self._seen = self._stamps()
        self._number = 0
        self._kept: list[int] = []

    def take(self) -> Generation:
        """Copy the files as they are now; blocks.

        Raises:
            UsageError: a file cannot be read.
        """
        self._taken = self._seen = self._stamps()
        self._number += 1
        folder = self._folder / str(self._number)
        folder.mkdir(mode=0o700)
        self._kept.append(self._number)
        copies: list[ModelSpec] = []
        digest = hashlib.sha256()
        for model in self._models:
            path = folder / f"{len(copies)}.slip"
            try:
                shutil.copyfile(model.path, path)
            except OSError as error:
                raise UsageError(f"{model.path} cannot be read: {reason_of(error)}") from error
            digest.update(_digest(path))
            copies.append(replace(model, path=path))
        return Generation(self._number, folder, tuple(copies), digest.hexdigest()[:16])

    def discard(self, needed: Collection[int]) -> None:
        """Delete the copies that nobody needs any more; blocks.

        Args:
            needed: Numbers of the generations that are kept.
        """
        for number in [each for each in self._kept if each not in needed]:
            shutil.rmtree(self._folder / str(number))
            self._kept.remove(number)

    def have_changed(self) -> bool:
        """Return whether the files differ from the newest copy, and did so at the last call too.

        A file that is still being written changes between two calls.
        """
        before, self._seen = self._seen, self._stamps()
        return self._seen == before and self._seen != self._taken and () not in self._seen

    def _stamps(self) -> tuple[Stamp | tuple[()], ...]:
        return tuple(_stamp(model.path) for model in self._models)


def _stamp(path: Path) -> Stamp | tuple[()]:
    """Return what identifies a file's content; an empty tuple if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _digest(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.digest()
