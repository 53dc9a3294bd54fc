"""Read the members of a package (a zip file) when they are needed, and check each member."""

from __future__ import annotations

import hashlib
import os
import re
import weakref
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from slipstream.errors import UsageError, reason_of
from slipstream.infer.graph.graph import Array

MANIFEST = "manifest.json"
# Greatest size of a manifest in bytes, because it is read before anything is checked. Chosen by
# hand, not measured.
LARGEST_MANIFEST = 64 * 2**20
NAME = re.compile(r"(blobs/)?[A-Za-z0-9_][A-Za-z0-9._-]{0,200}")
REMEDY = "compile the model again, or copy the file again"
# A member of a zip begins with a header of 30 bytes. Its last four bytes are the lengths of the
# name and of the extra field, which follow the header (APPNOTE.TXT, section 4.3.7).
LENGTHS_AT = 26
HEADER = 30


class Member(BaseModel):
    """Size and SHA-256 of one member of a package."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: int = Field(ge=0)
    sha256: str


class Members:
    """The members of a package's file.

    The file stays open as long as this object exists. All methods therefore read the file that was
    opened, even if another file has replaced it. Several threads may use one object at the same
    time.
    """

    def __init__(self, path: Path) -> None:
        """Open a package and check the directory of the zip.

        Args:
            path: File of the package.

        Raises:
            UsageError: the file does not exist, or is not a zip file in the form of a package.
        """
        self.path = path
        self._infos: dict[str, zipfile.ZipInfo] = {}
        self._listed: Mapping[str, Member] = {}
        try:
            self._file = os.open(path, os.O_RDONLY)
            weakref.finalize(self, os.close, self._file)
            with (
                open(self._file, "rb", closefd=False) as file,
                zipfile.ZipFile(file) as archive,
            ):
                self._infos = _inspected(path, archive, os.fstat(self._file).st_size)
        except FileNotFoundError as error:
            raise UsageError(f"{path} does not exist; make it with slipstream compile") from error
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {reason_of(error)}") from error
        except zipfile.BadZipFile as error:
            raise UsageError(
                f"{path} is no package of Slipstream, or damaged: {error}; {REMEDY}"
            ) from error
        except (EOFError, KeyError, NotImplementedError, RuntimeError, ValueError) as error:
            if isinstance(error, UsageError):
                raise
            raise damaged(path, str(error) or type(error).__name__) from error

    def manifest(self) -> bytes:
        """Return the manifest, which lists all other members."""
        data = self._bytes(MANIFEST).tobytes()
        if zlib.crc32(data) != self._infos[MANIFEST].CRC:
            raise damaged(self.path, f"{MANIFEST} has another CRC than the zip says")
        return data

    def expect(self, listed: Mapping[str, Member], needed: Iterable[str]) -> None:
        """Check that the file has the manifest and exactly the listed members, each with its size.

        Args:
            listed: Members that the manifest lists.
            needed: Names of members that every package must have.

        Raises:
            UsageError: a member is missing, is not listed, or has another size than the listed
                size.
        """
        names = self._infos.keys() - {MANIFEST}
        missing = sorted({*listed, *needed} - names)
        if missing:
            raise damaged(self.path, f"it lacks {', '.join(missing)}")
        strange = sorted(names - listed.keys())
        if strange:
            raise damaged(self.path, f"its manifest does not name {', '.join(strange)}")
        for name, member in listed.items():
            size = self._infos[name].file_size
            if size != member.size:
                raise damaged(self.path, f"{name} has {size} bytes, and should have {member.size}")
        self._listed = listed

    def names(self, prefix: str) -> list[str]:
        """Return the member names that begin with `prefix`."""
        return [name for name in self._listed if name.startswith(prefix)]

    def read(self, name: str) -> Array:
        """Return the bytes of a member, as a uint8 array with one axis. Blocks.

        Raises:
            UsageError: the bytes do not have the SHA-256 that the manifest lists.
        """
        data = self._bytes(name)
        if hashlib.sha256(data.data).hexdigest() != self._listed[name].sha256:
            raise damaged(self.path, f"{name} has another SHA-256 than its manifest says")
        return data

    def read_all(self, names: Iterable[str]) -> dict[str, Array]:
        """Return the bytes of several members; threads read the members at the same time."""
        members = list(names)
        with ThreadPoolExecutor() as threads:  # reading and hashing let other threads run
            return dict(zip(members, threads.map(self.read, members), strict=True))

    def _bytes(self, name: str) -> Array:
        """Return the bytes of a member, unchecked.

        Callers check the SHA-256 or the CRC of the bytes. If the CRC were checked in addition to
        the SHA-256, this would take a fifth of the loading time.
        """
        try:
            return self._read(name)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {reason_of(error)}") from error

    def _read(self, name: str) -> Array:
        info = self._infos[name]
        header = os.pread(self._file, HEADER, info.header_offset)
        name_size, extra_size = header[LENGTHS_AT : LENGTHS_AT + 2], header[LENGTHS_AT + 2 :]
        at = HEADER + int.from_bytes(name_size, "little") + int.from_bytes(extra_size, "little")
        # NumPy allocates large arrays in large pages, into which reading takes half the time.
        data = np.empty(info.file_size, np.uint8)
        done = 0
        while done < len(data):
            count = os.preadv(self._file, [data[done:].data], info.header_offset + at + done)
            if count == 0:
                raise damaged(self.path, f"{name} ends early")
            done += count
        return data


def _inspected(path: Path, archive: zipfile.ZipFile, file_size: int) -> dict[str, zipfile.ZipInfo]:
    """Check the directory of the zip, without reading a member, and return the directory."""
    infos = {info.filename: info for info in archive.infolist()}
    if len(infos) != len(archive.infolist()):
        raise damaged(path, "two members have the same name")
    for info in infos.values():
        _inspect(path, info, file_size)
    if sum(info.file_size for info in infos.values()) > file_size:
        raise damaged(path, "its members have more bytes than it has itself")
    if MANIFEST not in infos:
        raise UsageError(
            f"{path} is a zip, but no package of Slipstream: it has no {MANIFEST};"
            " make one with slipstream compile"
        )
    return infos


def _inspect(path: Path, info: zipfile.ZipInfo, file_size: int) -> None:
    if NAME.fullmatch(info.filename) is None:
        raise damaged(path, f"no member of a package is called {info.filename!r}")
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
        raise damaged(
            path, f"{info.filename} is compressed or encrypted; packages store members as they are"
        )
    if info.file_size != info.compress_size or info.file_size > file_size:
        raise damaged(
            path, f"{info.filename} claims {info.file_size} bytes, and the file has fewer"
        )
    if not 0 <= info.header_offset < file_size:
        raise damaged(path, f"{info.filename} begins outside the file")
    if info.filename == MANIFEST and info.file_size > LARGEST_MANIFEST:
        raise damaged(
            path, f"{MANIFEST} has {info.file_size} bytes, more than {LARGEST_MANIFEST} allowed"
        )


def damaged(path: Path, reason: str) -> UsageError:
    """Return the error for a file that `package.write` cannot have written in this form."""
    return UsageError(f"{path} is damaged, or was made by something else: {reason}; {REMEDY}")
