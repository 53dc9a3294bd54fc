"""The manifest of a checkpoint: its step, its tensors, and the files with their checksums.

A folder is a checkpoint if it has a valid manifest, and the manifest is written after all other
files are safe. The manifest is one line of JSON:

    {"crc32": "89abcdef", "manifest": {...}}

The first value is the checksum of the text of the second one.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from typing import Any

from slipstream.train.checkpoint.damage import CheckpointError

MANIFEST = "manifest.json"
FORMAT = "slipstream checkpoint"
VERSION = 1
# Part of a file that has one checksum. A reader of a few bytes reads one block. 1 TB has 60,000
# checksums, which are 0.7 MB of the manifest.
BLOCK_BYTES = 16 * 2**20

# Python's own checksums, measured here on one core without SHA instructions: crc32 2.0 GB/s,
# adler32 1.6, blake2b 0.42, md5 0.41, SHA-256 0.24. Checksums detect accidents, not attacks.
_FRAME = re.compile(rb'\{"crc32": "([0-9a-f]{8})", "manifest": ')
_FOLDER = re.compile(r"step-(\d{8,})")
_FILE = re.compile(r"rank-\d{5,}-of-\d{5,}\.[0-9a-f]+-\d+\.safetensors")
_SAVE = re.compile(r"[0-9a-f]+-\d+")


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedFile:
    """A file of a checkpoint.

    Args:
        name: Name of the file in the folder of the checkpoint.
        num_bytes: Size of the file in bytes.
        checksums: CRC-32 of each block of the file, as eight hexadecimal digits.
    """

    name: str
    num_bytes: int
    checksums: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the description as JSON."""
        return {"name": self.name, "num_bytes": self.num_bytes, "checksums": self.checksums}


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedSlice:
    """A box of a tensor that lies in one piece in a file.

    Args:
        file: Index of the file in the manifest's list.
        key: Name of the box in the safetensors header of the file.
        begin: Position of its first byte in the file.
        offsets: Index of its first element in each dimension of the tensor.
        shape: Number of elements in each dimension.
    """

    file: int
    key: str
    begin: int
    offsets: tuple[int, ...]
    shape: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the description as JSON."""
        return {
            "file": self.file,
            "key": self.key,
            "begin": self.begin,
            "offsets": self.offsets,
            "shape": self.shape,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedTensor:
    """A tensor of a checkpoint.

    Args:
        dtype: Name of the dtype in the safetensors format, such as "F32".
        shape: Number of elements in each dimension.
        slices: Boxes that together are the tensor.
    """

    dtype: str
    shape: tuple[int, ...]
    slices: tuple[SavedSlice, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the description as JSON."""
        slices = [box.as_json() for box in self.slices]
        return {"dtype": self.dtype, "shape": self.shape, "slices": slices}


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointManifest:
    """The content of a checkpoint.

    Args:
        step: Training step after which the state was saved, 0 or more.
        time: Time of the save in seconds since 1970 (UTC).
        num_ranks: Number of ranks that saved.
        save: Identity of the save, which is part of the names of its files.
        files: Files in the folder of the checkpoint.
        tensors: Tensors by name.
        state: Tree of plain values and names of tensors; see `tree`.
    """

    step: int
    time: float
    num_ranks: int
    save: str
    files: tuple[SavedFile, ...]
    tensors: dict[str, SavedTensor]
    state: Any

    @property
    def num_bytes(self) -> int:
        """Size of all files in bytes."""
        return sum(file.num_bytes for file in self.files)

    def as_bytes(self) -> bytes:
        """Return the content of the manifest's file."""
        fields = {
            "format": FORMAT,
            "version": VERSION,
            "block_bytes": BLOCK_BYTES,
            "step": self.step,
            "time": self.time,
            "num_ranks": self.num_ranks,
            "save": self.save,
            "files": [file.as_json() for file in self.files],
            "tensors": {name: tensor.as_json() for name, tensor in self.tensors.items()},
            "state": self.state,
        }
        text = json.dumps(fields, separators=(",", ":"), allow_nan=False).encode()
        return b'{"crc32": "%08x", "manifest": %s}\n' % (zlib.crc32(text), text)


def parse_manifest(content: bytes, name: str) -> CheckpointManifest:
    """Return the manifest that a file contains.

    Args:
        content: Content of the file.
        name: Name of the file for messages.

    Raises:
        CheckpointError: The file was cut or changed, or another version of Slipstream wrote it.
    """
    frame = _FRAME.match(content)
    text = content[frame.end() : -2] if frame else b""
    if frame is None or not content.endswith(b"}\n"):
        raise CheckpointError(f"{name} is no complete manifest: it has {len(content)} bytes")
    expected, found = frame[1].decode(), f"{zlib.crc32(text):08x}"
    if expected != found:
        raise CheckpointError(f"{name} is damaged: its crc32 is {found}, expected {expected}")
    try:
        fields: dict[str, Any] = json.loads(text)
        read = (fields.pop("format", None), fields.pop("version", None))
        if read != (FORMAT, VERSION) or fields.pop("block_bytes") != BLOCK_BYTES:
            raise CheckpointError(
                f"{name} has format and version {read}; allowed: {(FORMAT, VERSION)}; read it with"
                " the version of Slipstream that wrote it"
            )
        return _manifest(fields, name)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{name} has fields that no save writes ({type(error).__name__}: {error}); take another"
            " checkpoint"
        ) from error


def _manifest(fields: dict[str, Any], name: str) -> CheckpointManifest:
    files = tuple(_file(entry, name) for entry in fields.pop("files"))
    tensors = {key: saved_tensor(entry) for key, entry in fields.pop("tensors").items()}
    return CheckpointManifest(files=files, tensors=tensors, **fields)


def _file(entry: dict[str, Any], name: str) -> SavedFile:
    if not _FILE.fullmatch(entry["name"]):
        raise CheckpointError(f"{name} names the file {entry['name']!r}, which is no file of ranks")
    return saved_file(entry)


def saved_file(entry: dict[str, Any]) -> SavedFile:
    """Return the description of a file from its JSON."""
    return SavedFile(
        name=entry["name"], num_bytes=entry["num_bytes"], checksums=tuple(entry["checksums"])
    )


def saved_tensor(entry: dict[str, Any]) -> SavedTensor:
    """Return the description of a tensor from its JSON."""
    slices = tuple(
        SavedSlice(
            file=box["file"],
            key=box["key"],
            begin=box["begin"],
            offsets=tuple(box["offsets"]),
            shape=tuple(box["shape"]),
        )
        for box in entry["slices"]
    )
    return SavedTensor(dtype=entry["dtype"], shape=tuple(entry["shape"]), slices=slices)


def checksums(data: memoryview) -> tuple[str, ...]:
    """Return the CRC-32 of each block of a file's content."""
    blocks = (data[begin : begin + BLOCK_BYTES] for begin in range(0, len(data), BLOCK_BYTES))
    return tuple(f"{zlib.crc32(block):08x}" for block in blocks)


def folder_of(step: int) -> str:
    """Return the name of the folder of a step's checkpoint."""
    return f"step-{step:08d}"


def step_of(folder: str) -> int | None:
    """Return the step whose checkpoint has this folder name; None for other names."""
    match = _FOLDER.fullmatch(folder)
    return int(match[1]) if match and folder == folder_of(int(match[1])) else None


def is_save(identity: str) -> bool:
    """Return whether a text has the form of the identity of a save, such as "9f2c41d0-3"."""
    return _SAVE.fullmatch(identity) is not None


def file_name(rank: int, num_ranks: int, save: str, suffix: str) -> str:
    """Return the name of a rank's file, such as "rank-00000-of-00008.9f2c41d0-3.safetensors".

    Args:
        rank: Rank that writes the file.
        num_ranks: Number of ranks that save.
        save: Identity of the save, so that files of an earlier save of the step, which was killed,
            are never taken for files of this one.
        suffix: Kind of the file, "safetensors" or "json".
    """
    return f"rank-{rank:05d}-of-{num_ranks:05d}.{save}.{suffix}"
