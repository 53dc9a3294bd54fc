"""The members of a package's file, read and checked one by one, when somebody asks for them."""

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

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array

MANIFEST = "manifest.json"
LARGEST_MANIFEST = 64 * 2**20
NAME = re.compile(r"(blobs/)?[A-Za-z0-9_][A-Za-z0-9._-]{0,200}")
AGAIN = "compile the model again, or copy the file again"
LENGTHS_AT = 26  # in the header of a member: of its name and what follows, then these
HEADER = 30


class Member(BaseModel):
    """A file of the package."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: int = Field(ge=0)
    sha256: str


class Members:
    """A package's file, open as long as this is: what is read is what was there in the beginning,
    also where another file has taken its place since. Safe to read from several threads."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError where there is no such file, or no zip as packages are."""
        self.path = path
        self._infos: dict[str, zipfile.ZipInfo] = {}
        self._known: Mapping[str, Member] = {}
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
            raise UsageError(f"{path} cannot be read: {error}") from error
        except zipfile.BadZipFile as error:
            raise UsageError(
                f"{path} is no package of Slipstream, or damaged: {error}; {AGAIN}"
            ) from error
        except (EOFError, KeyError, NotImplementedError, RuntimeError, ValueError) as error:
            if isinstance(error, UsageError):
                raise
            raise wrong(path, str(error) or type(error).__name__) from error

    def manifest(self) -> bytes:
        """The member that tells of all others."""
        data = self._bytes(MANIFEST).tobytes()
        if zlib.crc32(data) != self._infos[MANIFEST].CRC:
            raise wrong(self.path, f"{MANIFEST} has another CRC than the zip says")
        return data

    def expect(self, known: Mapping[str, Member], needed: Iterable[str]) -> None:
        """Every member but the manifest is one of `known`, and of its size; raises UsageError."""
        names = self._infos.keys() - {MANIFEST}
        missing = sorted({*known, *needed} - names)
        if missing:
            raise wrong(self.path, f"it lacks {', '.join(missing)}")
        strange = sorted(names - known.keys())
        if strange:
            raise wrong(self.path, f"its manifest does not name {', '.join(strange)}")
        for name, member in known.items():
            size = self._infos[name].file_size
            if size != member.size:
                raise wrong(self.path, f"{name} has {size} bytes, and should have {member.size}")
        self._known = known

    def names(self, prefix: str) -> list[str]:
        """Those that begin so."""
        return [name for name in self._known if name.startswith(prefix)]

    def read(self, name: str) -> Array:
        """The bytes of a member that is expected: uint8 (n,). Blocks; raises UsageError where they
        are others than was said."""
        data = self._bytes(name)
        if hashlib.sha256(data.data).hexdigest() != self._known[name].sha256:
            raise wrong(self.path, f"{name} has another SHA-256 than its manifest says")
        return data

    def read_all(self, names: Iterable[str]) -> dict[str, Array]:
        """Several, some at a time."""
        wanted = list(names)
        with ThreadPoolExecutor() as threads:  # reading and hashing let other threads run
            return dict(zip(wanted, threads.map(self.read, wanted), strict=True))

    def _bytes(self, name: str) -> Array:
        """A member as it is in the file. Its CRC is not looked at, as its SHA-256 will be, and that
        takes a fifth of the time of loading."""
        try:
            return self._read(name)
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {error}") from error

    def _read(self, name: str) -> Array:
        info = self._infos[name]
        header = os.pread(self._file, HEADER, info.header_offset)
        name_size, more = header[LENGTHS_AT : LENGTHS_AT + 2], header[LENGTHS_AT + 2 :]
        at = HEADER + int.from_bytes(name_size, "little") + int.from_bytes(more, "little")
        # NumPy has large arrays in large pages: reading bytes takes twice as long.
        data = np.empty(info.file_size, np.uint8)
        done = 0
        while done < len(data):
            count = os.preadv(self._file, [data[done:].data], info.header_offset + at + done)
            if count == 0:
                raise wrong(self.path, f"{name} ends early")
            done += count
        return data


def _inspected(path: Path, archive: zipfile.ZipFile, file_size: int) -> dict[str, zipfile.ZipInfo]:
    """What the zip's directory says of its members, before anything of them is read."""
    infos = {info.filename: info for info in archive.infolist()}
    if len(infos) != len(archive.infolist()):
        raise wrong(path, "two members have the same name")
    for info in infos.values():
        _inspect(path, info, file_size)
    if sum(info.file_size for info in infos.values()) > file_size:
        raise wrong(path, "its members have more bytes than it has itself")
    if MANIFEST not in infos:
        raise UsageError(
            f"{path} is a zip, and no package of Slipstream: it has no {MANIFEST};"
            " make one with slipstream compile"
        )
    return infos


def _inspect(path: Path, info: zipfile.ZipInfo, file_size: int) -> None:
    if NAME.fullmatch(info.filename) is None:
        raise wrong(path, f"a member is called {info.filename!r}, as none of a package is")
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
        raise wrong(path, f"{info.filename} is compressed or encrypted, as none of a package is")
    if info.file_size != info.compress_size or info.file_size > file_size:
        raise wrong(path, f"{info.filename} claims {info.file_size} bytes, and the file has fewer")
    if not 0 <= info.header_offset < file_size:
        raise wrong(path, f"{info.filename} begins outside of it")
    if info.filename == MANIFEST and info.file_size > LARGEST_MANIFEST:
        raise wrong(path, f"{MANIFEST} has {info.file_size} bytes")


def wrong(path: Path, what: str) -> UsageError:
    """The error for a file that is not what it should be."""
    return UsageError(f"{path} is damaged, or was made by something else: {what}; {AGAIN}")
