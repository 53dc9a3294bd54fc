"""`python -m slipstream.cluster.head.outputs FOLDER SKIP PATTERN...`: write outputs as an archive.

The tar archive goes to the standard output. The same files give the same bytes, so a client whose
connection has ended goes on at the byte that it needs next, which is SKIP.
"""

from __future__ import annotations

import json
import signal
import stat
import sys
import tarfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from slipstream.cluster.head.storage.output_names import find_outputs
from slipstream.errors import ConfigError

CHUNK_BYTES = 1 << 20
PART_BYTES = 64 << 20


def output_files(folder: Path, patterns: Sequence[str]) -> list[Path]:
    """Return the files, folders and links that are outputs, each folder before its files.

    Args:
        folder: Folder of the code.
        patterns: Paths relative to it; patterns of a shell are allowed.
    """
    named = find_outputs(folder, patterns)
    found = {folder / name for name in (*named.names, *named.outside)}
    for path in list(found):
        if path.is_dir() and not path.is_symlink():
            found.update(path.rglob("*"))
    return sorted(found)


def archive_chunks(folder: Path, patterns: Sequence[str], skip: int = 0) -> Iterator[bytes]:
    """Yield the outputs as chunks of a tar archive.

    Args:
        folder: Folder of the code.
        patterns: Paths relative to it; patterns of a shell are allowed.
        skip: Number of bytes at the beginning that are left out (default 0).

    Raises:
        ConfigError: a file became shorter while it was read.
    """
    for path in output_files(folder, patterns):
        entry = _entry(path, str(path.relative_to(folder)))
        if entry is None:
            continue
        header = entry.tobuf(tarfile.PAX_FORMAT)
        yield from _after(skip, header)
        skip = max(skip - len(header), 0)
        padded = -(-entry.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
        if skip < padded:
            yield from _content(path, entry.size, skip)
            yield from _after(max(skip - entry.size, 0), b"\0" * (padded - entry.size))
        skip = max(skip - padded, 0)
    yield from _after(skip, b"\0" * (2 * tarfile.BLOCKSIZE))


def _after(skip: int, data: bytes) -> Iterator[bytes]:
    if skip < len(data):
        yield data[skip:]


def _entry(path: Path, name: str) -> tarfile.TarInfo | None:
    """Return the header of a path, or None for what cannot be copied, such as a socket."""
    state = path.lstat()
    entry = tarfile.TarInfo(name)
    entry.mode = stat.S_IMODE(state.st_mode)
    entry.mtime = int(state.st_mtime)
    if path.is_symlink():
        entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
    elif path.is_dir():
        entry.type = tarfile.DIRTYPE
    elif path.is_file():
        entry.size = state.st_size
    else:
        return None
    return entry


def _content(path: Path, size: int, skip: int) -> Iterator[bytes]:
    left = size - skip
    with path.open("rb") as file:
        file.seek(skip)
        while left > 0:
            chunk = file.read(min(CHUNK_BYTES, left))
            if not chunk:
                raise ConfigError(f"{path} became shorter while it was read; is it still written?")
            left -= len(chunk)
            yield chunk


def part_name(run: str, number: int) -> str:
    """Return the name of the file with a part of the archive of a run."""
    return f"slipstream-{run}.outputs.{number}"


def index_name(run: str) -> str:
    """Return the name of the file that tells how many bytes the parts of a run have."""
    return f"slipstream-{run}.outputs.json"


def write_parts(chunks: Iterable[bytes], folder: Path, run: str) -> int:
    """Write an archive as files of PART_BYTES; return the number of its bytes.

    Args:
        chunks: Archive.
        folder: Folder for the files.
        run: Run with the outputs.
    """
    size = 0
    for chunk in chunks:
        rest = memoryview(chunk)
        while rest:
            number, used = divmod(size, PART_BYTES)
            some = rest[: PART_BYTES - used]
            with (folder / part_name(run, number)).open("ab" if used else "wb") as file:
                file.write(some)
            size += len(some)
            rest = rest[len(some) :]
    return size


def write_index(folder: Path, run: str, size: int, error: str = "") -> None:
    """Write the file that tells of the parts, in one step.

    Args:
        folder: Folder of the parts.
        run: Run with the outputs.
        size: Number of bytes in all parts.
        error: Reason for which the archive is not whole, or "" (the default).
    """
    temporary = folder / f".{index_name(run)}"
    temporary.write_text(json.dumps({"bytes": size, "error": error}))
    temporary.replace(folder / index_name(run))


def remove_parts(folder: Path, run: str) -> None:
    """Delete the files of the outputs of a run."""
    for path in folder.glob(f"slipstream-{run}.outputs.*"):
        path.unlink()


def wait_for_client(seconds: float) -> None:
    """Wait until SIGTERM comes, with which a client gives a run back, at most for some seconds."""
    has_come = threading.Event()

    def leave(_number: int, _frame: FrameType | None) -> None:
        has_come.set()

    signal.signal(signal.SIGTERM, leave)
    has_come.wait(seconds)


def main() -> None:
    """Write the archive that the command line describes."""
    folder, skip, *patterns = sys.argv[1:]
    for chunk in archive_chunks(Path(folder), patterns, int(skip)):
        sys.stdout.buffer.write(chunk)


if __name__ == "__main__":
    main()
