"""Buckets: `python -m slipstream.cluster.head.storage.buckets URL FOLDER` brings one to this host.

The head sends files that the job has changed back at the end. Standard input has variables for the
access to the bucket, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipstream.errors import ConfigError

# File in the folder with size and time of each file that was brought.
_BROUGHT = ".slipstream-bucket.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageBucket:
    """A bucket, or a folder in it, whose files every host has in a folder.

    Args:
        name: Name of the storage in the job file.
        url: URL that fsspec understands, such as "s3://bucket/results".
        folder: Absolute path of the folder.
        is_sent_back: Whether new and changed files are written to the bucket at the end.
    """

    name: str
    url: str
    folder: str
    is_sent_back: bool


def bring(url: str, folder: Path) -> int:
    """Copy the files of a bucket to a folder; a second call copies those that are not there.

    Args:
        url: URL that fsspec understands; a bucket or folder that does not exist yet is empty.
        folder: Folder, which is made.

    Returns:
        The number of copied files.

    Raises:
        ConfigError: fsspec, or the package for this kind of URL, is not installed.
    """
    system, root = _open(url)
    folder.mkdir(parents=True, exist_ok=True)
    brought = _read_brought(folder)
    count = 0
    for path, size in _listed(system, root).items():
        target = folder / path
        if target.exists() and target.stat().st_size == size:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        system.get_file(f"{root}/{path}", str(target))
        brought[path] = _signature(target)
        count += 1
    _write_brought(folder, brought)
    return count


def send_back(url: str, folder: Path) -> int:
    """Write new and changed files of a folder to the bucket; nothing in the bucket is deleted.

    Args:
        url: URL that fsspec understands.
        folder: Folder that `bring` has filled.

    Returns:
        The number of written files.

    Raises:
        ConfigError: fsspec, or the package for this kind of URL, is not installed.
    """
    system, root = _open(url)
    brought = _read_brought(folder)
    count = 0
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        path = str(file.relative_to(folder))
        if path == _BROUGHT or brought.get(path) == _signature(file):
            continue
        system.makedirs(os.path.dirname(f"{root}/{path}"), exist_ok=True)
        system.put_file(str(file), f"{root}/{path}")
        brought[path] = _signature(file)
        count += 1
    _write_brought(folder, brought)
    return count


def _open(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it."""
    try:
        import fsspec  # pyright: ignore[reportMissingTypeStubs]

        system, path = fsspec.core.url_to_fs(url)  # pyright: ignore
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"the bucket {url} cannot be used on this host: {error}; add fsspec, and the package"
            " for such URLs (s3fs, ossfs), to software.packages"
        ) from error
    return system, str(path).rstrip("/")  # pyright: ignore[reportUnknownArgumentType]


def _listed(system: Any, root: str) -> dict[str, int]:
    """Return the size of each file below a path."""
    found: dict[str, dict[str, Any]] = system.find(root, detail=True)
    return {path[len(root) :].strip("/"): int(facts["size"]) for path, facts in found.items()}


def _signature(path: Path) -> list[int]:
    facts = path.stat()
    return [facts.st_size, facts.st_mtime_ns]


def _read_brought(folder: Path) -> dict[str, list[int]]:
    path = folder / _BROUGHT
    return json.loads(path.read_text()) if path.exists() else {}


def _write_brought(folder: Path, brought: Mapping[str, list[int]]) -> None:
    temporary = folder / f"{_BROUGHT}.new"
    temporary.write_text(json.dumps(brought))
    temporary.replace(folder / _BROUGHT)


def main() -> None:
    """Bring the bucket of the URL on the command line to the folder there."""
    os.environ.update(json.load(sys.stdin))
    print(bring(sys.argv[1], Path(sys.argv[2])))


if __name__ == "__main__":
    main()
