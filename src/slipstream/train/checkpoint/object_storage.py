"""Storage of checkpoints in whatever fsspec can open: S3, GCS, Azure, HDFS, memory and others."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Generator, Mapping
from typing import Any

import fsspec  # pyright: ignore[reportMissingTypeStubs]

from slipstream.train.checkpoint.storage import WRITE_BYTES, joined

# Files up to this size are written by one request, which is atomic in object stores. Manifests of
# 10,000 tensors have 3 MB. Larger files are uploaded in parts, and completed by the last request.
ONE_REQUEST_BYTES = 32 * 2**20


@contextlib.contextmanager
def _as_os_error(path: str) -> Generator[None]:
    """Raise the errors of a client's own classes, which most clients have, as OSError."""
    try:
        yield
    except (OSError, NotImplementedError):
        raise
    except Exception as error:
        raise OSError(errno.EIO, f"{type(error).__name__}: {error}", path) from error


class ObjectFile:
    """A file of an fsspec file system that is open for reading.

    Args:
        stream: File object of the file system.
        path: Path of the file for messages.
    """

    def __init__(self, stream: Any, path: str) -> None:
        self._stream = stream
        self._path = path

    def readinto(self, offset: int, target: memoryview) -> int:
        """Fill the target with bytes from an offset on; return how many there were."""
        with _as_os_error(self._path):
            self._stream.seek(offset)
            done = 0
            while done < len(target):
                part = self._stream.read(len(target) - done)
                if not part:
                    break
                target[done : done + len(part)] = part
                done += len(part)
        return done

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


class ObjectStorage:
    """Checkpoints in a file system of fsspec, without renaming.

    An object store has a file only after its last byte was sent. Other file systems of fsspec may
    show a part of a file. No such file is taken for whole, because the manifest is written last and
    has a checksum.

    Args:
        file_system: File system of fsspec.
        root: Path of the folder of all checkpoints in the file system.
        url: Name of the folder for messages.
    """

    def __init__(self, file_system: Any, root: str, url: str) -> None:
        self._file_system = file_system
        self._root = root.rstrip("/")
        self.url = url
        self.poll_seconds = 1.0
        self.shows_begun = False

    @classmethod
    def of_url(cls, url: str, options: Mapping[str, Any]) -> ObjectStorage:
        """Return the storage of a URL, such as "s3://bucket/run7".

        Raises ImportError if the package for the protocol is not installed, and ValueError if
        fsspec does not know the protocol.
        """
        core: Any = fsspec.core
        file_system, root = core.url_to_fs(url, **options)
        return cls(file_system, root, url)

    def write(self, name: str, data: memoryview) -> None:
        """Write a file; when the call returns, the storage has it."""
        path = self._path(name)
        with _as_os_error(path):
            self._file_system.makedirs(path.rpartition("/")[0], exist_ok=True)
            if len(data) <= ONE_REQUEST_BYTES:
                self._file_system.pipe_file(path, bytes(data))
                return
            with self._file_system.open(path, "wb") as stream:
                for begin in range(0, len(data), WRITE_BYTES):
                    stream.write(data[begin : begin + WRITE_BYTES])

    def open(self, name: str) -> ObjectFile:
        """Open a file for reading; FileNotFoundError if it does not exist."""
        path = self._path(name)
        with _as_os_error(path):
            return ObjectFile(self._file_system.open(path, "rb", cache_type="none"), path)

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes, or None if it does not exist."""
        self._file_system.invalidate_cache()
        try:
            with _as_os_error(name):
                info = self._file_system.info(self._path(name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return int(info["size"])

    def changed(self, name: str) -> float | None:
        """Return when a file was changed; None if it does not exist or the storage has no times.

        Object stores have no times of folders.
        """
        try:
            with _as_os_error(name):
                return float(self._file_system.modified(self._path(name)).timestamp())
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, NotImplementedError):
            return None

    def names(self, folder: str = "") -> list[str]:
        """Return the sorted names of the files and folders in a folder; [] if there is none."""
        self._file_system.invalidate_cache()
        path = self._path(folder)
        try:
            with _as_os_error(path):
                entries: list[str] = self._file_system.ls(path, detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        names = {entry.rstrip("/").rpartition("/")[2] for entry in entries}
        # Stores that have folders as empty objects list the folder in itself.
        return sorted(names - {"", path.rpartition("/")[2]})

    def remove(self, name: str) -> None:
        """Remove a file; a missing file is no error."""
        try:
            with _as_os_error(name):
                self._file_system.rm_file(self._path(name))
        except FileNotFoundError:
            return

    def remove_folder(self, folder: str, first: str) -> None:
        """Remove a folder with all its files, the file `first` before the others."""
        self.remove(joined(folder, first))
        for name in self.names(folder):
            self.remove(joined(folder, name))
        try:
            with _as_os_error(folder):
                self._file_system.rmdir(self._path(folder))
        except (FileNotFoundError, NotImplementedError):
            return  # object stores have no folders

    def _path(self, name: str) -> str:
        return joined(self._root, name) if self._root else name
