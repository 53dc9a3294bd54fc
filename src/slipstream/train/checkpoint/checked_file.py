"""A file of a checkpoint whose blocks are compared with their checksums as they are read."""

from __future__ import annotations

import zlib
from types import TracebackType

from slipstream.train.checkpoint.damage import CheckpointError
from slipstream.train.checkpoint.manifest import BLOCK_BYTES, SavedFile
from slipstream.train.checkpoint.storage import OpenFile, Storage, joined


class CheckedFile:
    """A file of a checkpoint that is open for reading.

    The last block is kept, so small tensors beside each other are read together.

    Args:
        storage: Storage of all checkpoints.
        name: Path of the file in the storage.
        saved: Size and checksums of the file.
    """

    def __init__(self, storage: Storage, name: str, saved: SavedFile) -> None:
        self._storage = storage
        self._name = name
        self._saved = saved
        self._file: OpenFile | None = None
        self._block = memoryview(bytearray(min(BLOCK_BYTES, saved.num_bytes)))
        self._number = -1

    def __enter__(self) -> CheckedFile:
        """Return this file."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def read(self, begin: int, target: memoryview) -> None:
        """Fill the target with the bytes of the file from `begin` on.

        Raises:
            CheckpointError: The file is missing, too short, or has another checksum in a block.
        """
        done = 0
        while done < len(target):
            number, offset = divmod(begin + done, BLOCK_BYTES)
            block = self._read_block(number)
            count = min(len(target) - done, len(block) - offset)
            target[done : done + count] = block[offset : offset + count]
            done += count

    def verify(self) -> None:
        """Read the whole file and compare all checksums; raise CheckpointError at the first one."""
        for number in range(len(self._saved.checksums)):
            self._read_block(number)

    def _read_block(self, number: int) -> memoryview:
        begin = number * BLOCK_BYTES
        block = self._block[: min(BLOCK_BYTES, self._saved.num_bytes - begin)]
        if number == self._number:
            return block
        self._number = -1
        count = self._open().readinto(begin, block)
        place = f"{joined(self._storage.url, self._name)}, bytes {begin} to {begin + len(block)}"
        if count != len(block):
            raise CheckpointError(f"{place}: only {count} bytes are there; the file was cut")
        expected, found = self._saved.checksums[number], f"{zlib.crc32(block):08x}"
        if expected != found:
            raise CheckpointError(f"{place}: the crc32 is {found}, expected {expected}: damaged")
        self._number = number
        return block

    def _open(self) -> OpenFile:
        if self._file is None:
            try:
                self._file = self._storage.open(self._name)
            except FileNotFoundError as error:
                raise CheckpointError(
                    f"{joined(self._storage.url, self._name)} does not exist"
                ) from error
        return self._file
