"""Storage of checkpoints: folders of a file system here, other stores in `object_storage`.

A checkpoint is a folder of files. Files are written once and never changed, and the last one, the
manifest, makes the folder a checkpoint. So a storage needs few promises, which `Storage` lists.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from slipstream.errors import UnsupportedError, UsageError

# One write call. Measured with 1 GB on a virtual disk: 4 MiB take 1.92 s, 16 MiB 1.66 s.
WRITE_BYTES = 16 * 2**20
TEMPORARY = ".tmp"


class OpenFile(Protocol):
    """A file that is open for reading."""

    def readinto(self, offset: int, target: memoryview) -> int:
        """Fill the target with bytes from an offset on; return how many there were."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class Storage(Protocol):
    """A tree of files, named by paths with "/" below the folder of all checkpoints.

    Attributes:
        url: Name of the folder for messages, a path or a URL.
        poll_seconds: Longest pause between two looks for a file of another rank.
        shows_begun: Whether the names of a folder show a file that is being written, under its
            name with a suffix that ends with `TEMPORARY`.
    """

    url: str
    poll_seconds: float
    shows_begun: bool

    def write(self, name: str, data: memoryview) -> None:
        """Write a file; when the call returns, the file survives a crash of the machine.

        Readers never see a part of the file under this name if the storage can rename files or
        writes whole objects. Other storages may show a part, which a checksum detects. Blocks.
        """
        ...

    def open(self, name: str) -> OpenFile:
        """Open a file for reading; FileNotFoundError if it does not exist."""
        ...

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes, or None if it does not exist."""
        ...

    def changed(self, name: str) -> float | None:
        """Return when a file or folder was changed, in seconds of the storage's own clock.

        The result is None if it does not exist, or if the storage does not tell.
        """
        ...

    def names(self, folder: str = "") -> list[str]:
        """Return the sorted names of the files and folders in a folder; [] if there is none."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, so that it is gone even after a crash; a missing file is no error."""
        ...

    def remove_folder(self, folder: str, first: str) -> None:
        """Remove a folder with all that is in it; a missing folder is no error.

        The file `first` is gone, even after a crash, before the others. If the folder is a link,
        only the link is removed.
        """
        ...


class LocalFile:
    """A file of a local or network file system that is open for reading."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY)

    def readinto(self, offset: int, target: memoryview) -> int:
        """Fill the target with bytes from an offset on; return how many there were."""
        done = 0
        while done < len(target):
            count = os.preadv(self._descriptor, [target[done:]], offset + done)
            if count == 0:
                break
            done += count
        return done

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class LocalStorage:
    """Checkpoints in a folder of a local or network file system, such as NFS.

    A file is written under a temporary name, synchronized to the disk and then renamed, and the
    folder is synchronized after that. Large files bypass the page cache where the file system
    allows this (O_DIRECT): 1 GB then takes 0.07 s of CPU time in place of 0.4 to 1.2 s, and the
    training data remain in the cache.

    Args:
        folder: Folder of all checkpoints; the first write makes it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.url = str(self.folder)
        self.poll_seconds = 0.1
        self.shows_begun = True

    def write(self, name: str, data: memoryview) -> None:
        """Write a file; when the call returns, the file survives a crash of the machine."""
        path = self.folder / name
        _make_folder(path.parent)
        # Another process may write the same file: a manifest, if two jobs save into one folder.
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}{TEMPORARY}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            rest = _write_directly(descriptor, data)
            _write_all(descriptor, data[rest:])
            os.fsync(descriptor)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)  # a full disk gets its space back
            raise
        finally:
            os.close(descriptor)
        _synchronize_folder(path.parent)

    def open(self, name: str) -> LocalFile:
        """Open a file for reading; FileNotFoundError if it does not exist."""
        return LocalFile(self.folder / name)

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes, or None if it does not exist."""
        try:
            return (self.folder / name).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def changed(self, name: str) -> float | None:
        """Return when a file or folder was changed, or None if it does not exist."""
        try:
            return (self.folder / name).stat().st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, folder: str = "") -> list[str]:
        """Return the sorted names of the files and folders in a folder; [] if there is none."""
        try:
            return sorted(os.listdir(self.folder / folder))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def remove(self, name: str) -> None:
        """Remove a file, so that it is gone even after a crash; a missing file is no error."""
        path = self.folder / name
        if path.exists():
            path.unlink(missing_ok=True)
            _synchronize_folder(path.parent)

    def remove_folder(self, folder: str, first: str) -> None:
        """Remove a folder with all that is in it, the file `first` before the others."""
        path = self.folder / folder
        if path.is_symlink():
            path.unlink()
        elif path.is_dir():
            self.remove(joined(folder, first))
            shutil.rmtree(path)
        else:
            return
        _synchronize_folder(self.folder)


def open_storage(
    folder: str | os.PathLike[str], options: Mapping[str, Any] | None = None
) -> Storage:
    """Return the storage that a path or a URL names.

    Args:
        folder: Path of a folder, or a URL such as "s3://bucket/run7", whose protocol fsspec knows.
        options: Options of fsspec's file system, such as {"profile": "training"} (default: none). A
            path has no options.

    Raises:
        UsageError: A path has options, or fsspec does not know the protocol.
        UnsupportedError: A package is missing; the message has its name.
    """
    text = os.fspath(folder)
    protocol, separator, path = text.partition("://")
    if separator and protocol != "file":
        return _fsspec_storage(text, options or {})
    if options:
        raise UsageError(f"{text} has options for fsspec; allowed: options for a URL such as s3://")
    return LocalStorage(Path(path if separator else text))


def _fsspec_storage(url: str, options: Mapping[str, Any]) -> Storage:
    try:
        from slipstream.train.checkpoint.object_storage import ObjectStorage

        return ObjectStorage.of_url(url, options)
    except ImportError as error:
        raise UnsupportedError(
            f"{url} cannot be opened: {error}; install the package that the message names"
        ) from error
    except ValueError as error:
        raise UsageError(
            f"the folder is {url}; allowed: a path, or a URL that fsspec knows ({error})"
        ) from error


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, so that all of them survive a crash of the machine."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _synchronize_folder(folder.parent)


def _synchronize_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_directly(descriptor: int, data: memoryview) -> int:
    """Write the whole pages of page-aligned data past the page cache; return how many bytes.

    The caller writes the rest. Data that is small or not aligned, and file systems without
    O_DIRECT, have all bytes left to the caller.
    """
    whole = len(data) // mmap.PAGESIZE * mmap.PAGESIZE
    if whole == 0 or not _is_aligned(data):
        return 0
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
        _write_all(descriptor, data[:whole])
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        os.lseek(descriptor, 0, os.SEEK_SET)
        whole = 0
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    return whole


def _is_aligned(data: memoryview) -> bool:
    import numpy as np  # imported here, because the listing of checkpoints needs no NumPy

    return int(np.frombuffer(data, np.uint8).ctypes.data) % mmap.PAGESIZE == 0


def _write_all(descriptor: int, data: memoryview) -> None:
    done = 0
    while done < len(data):
        done += os.write(descriptor, data[done : done + WRITE_BYTES])


def joined(*parts: str) -> str:
    """Return the path of a file below the folder of all checkpoints."""
    return "/".join(part for part in parts if part)


def read_whole(storage: Storage, name: str) -> bytes:
    """Return the content of a file; FileNotFoundError if it does not exist."""
    size = storage.size(name)
    if size is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    content = bytearray(size)
    file = storage.open(name)
    try:
        count = file.readinto(0, memoryview(content))
    finally:
        file.close()
    return bytes(content[:count])


def find_names(storage: Storage, folder: str, names: Sequence[str]) -> list[str]:
    """Return which of the names are in a folder, in their order."""
    there = set(storage.names(folder))
    return [name for name in names if name in there]
