"""Outputs that come back as a tar archive, over connections that may end."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, cast

from slipstream.errors import ConfigError, PeerError

# Pauses in seconds before new connections in a row that bring nothing, as while an API server is
# started again; then the outputs are given up. Chosen by hand.
PAUSES = (0.0, 1.0, 2.0, 4.0, 8.0, 15.0)


def unmatched(patterns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the patterns that match nothing of an archive.

    Args:
        patterns: Paths or patterns, relative to the folder of the code.
        names: Paths in the archive, relative to the same.
    """
    known = [PurePosixPath(name) for name in names]
    return [
        pattern
        for pattern in patterns
        if PurePosixPath(pattern) not in known
        and not any(_fits(PurePosixPath(pattern).parts, path.parts) for path in known)
    ]


def _fits(pattern: Sequence[str], path: Sequence[str]) -> bool:
    if not pattern or not path:
        return not path and all(part == "**" for part in pattern)
    if pattern[0] == "**":
        return _fits(pattern[1:], path) or _fits(pattern, path[1:])
    return fnmatchcase(path[0], pattern[0]) and _fits(pattern[1:], path[1:])


class ResumedStream:
    """The bytes of an archive; after a lost connection, the next one goes on at the next byte.

    Args:
        open_at: Function that yields the bytes from a position on; it raises PeerError when the
            connection is lost.
        pauses: Pauses in seconds before new connections in a row that bring nothing.
    """

    def __init__(
        self, open_at: Callable[[int], Iterator[bytes]], pauses: Sequence[float] = PAUSES
    ) -> None:
        self._open_at = open_at
        self._pauses = pauses
        self._position = 0
        self._rest: bytes = b""
        self._chunks = open_at(0)

    def read(self, size: int) -> bytes:
        """Return so many bytes, or fewer at the end of the archive.

        Raises:
            PeerError: several connections in a row have brought nothing.
        """
        parts: list[bytes] = []
        while size > 0:
            if not self._rest and not self._receive():
                break
            part, self._rest = self._rest[:size], self._rest[size:]
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _receive(self) -> bool:
        """Receive the next chunk; return whether there is one."""
        pauses = iter(self._pauses)
        while True:
            try:
                self._rest = next(self._chunks, b"")
            except PeerError:
                pause = next(pauses, None)
                if pause is None:
                    raise
                time.sleep(pause)
                self._chunks = self._open_at(self._position)
                continue
            self._position += len(self._rest)
            return bool(self._rest)


def unpack_outputs(stream: ResumedStream, folder: Path) -> list[str]:
    """Bring the files of an archive into a folder; each file appears there when it is whole.

    Args:
        stream: Archive.
        folder: Folder that gets the files; those with the same names are replaced.

    Returns:
        The paths in the archive.

    Raises:
        ConfigError: the archive is not whole, a path or a link leads out of the folder, or this
            machine cannot write a file.
        PeerError: the archive cannot be read to its end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    links: list[tuple[Path, str]] = []
    names: list[str] = []
    try:
        # A folder of its own beside the files, so that a rename is one step.
        with (
            tempfile.TemporaryDirectory(prefix=".slipstream-", dir=folder) as parts,
            tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as archive,
        ):
            for entry in archive:
                path = folder / _checked(entry.name)
                names.append(entry.name)
                if entry.issym():
                    links.append((path, entry.linkname))
                elif entry.isdir():
                    path.mkdir(parents=True, exist_ok=True)
                else:
                    _unpack_file(archive, entry, Path(parts) / "part", path)
            while stream.read(tarfile.RECORDSIZE):  # the rest tells whether the sender has failed
                pass
    except tarfile.TarError as error:
        raise ConfigError(f"the outputs are not whole: {error}") from error
    except OSError as error:
        raise ConfigError(
            f"an output cannot be written to {folder}: {error.strerror or error}"
        ) from error
    # Links come last, so that no file of the archive is written through one of them.
    _make_links(links, folder)
    return names


def _checked(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ConfigError(f"the archive of the outputs has {name!r}, outside of its folder")
    return path


def _unpack_file(archive: tarfile.TarFile, entry: tarfile.TarInfo, part: Path, path: Path) -> None:
    content = archive.extractfile(entry)
    if content is None:
        raise ConfigError(f"the archive of the outputs has {entry.name!r}, which is no file")
    with part.open("wb") as file:
        shutil.copyfileobj(content, file, 1 << 20)
    part.chmod(entry.mode & 0o777)
    os.utime(part, (entry.mtime, entry.mtime))
    path.parent.mkdir(parents=True, exist_ok=True)
    part.replace(path)


def _make_links(links: Sequence[tuple[Path, str]], folder: Path) -> None:
    root = os.path.abspath(folder)
    outside_of_it: list[str] = []
    for path, target in links:
        reached = os.path.abspath(path.parent / target)
        if os.path.isabs(target) or os.path.commonpath([reached, root]) != root:
            outside_of_it.append(f"{path.relative_to(folder)} -> {target}")
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)
    if outside_of_it:
        raise ConfigError(
            "links among the outputs lead out of the folder of the code and were left out:"
            f" {', '.join(outside_of_it)}; the other outputs are there"
        )
