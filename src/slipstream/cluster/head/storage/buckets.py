"""Buckets: `python -m slipstream.cluster.head.storage.buckets URL FOLDER` brings one to this host.

The head sends files that the job has changed back at the end. Standard input has variables for the
access to the bucket, as JSON.
"""

from __future__ import annotations

import filecmp
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from slipstream.cluster.head.storage.brought import (
    MEMO,
    PARTIAL,
    BroughtFile,
    conflict_name,
    read_memo,
    version_here,
    version_there,
    write_memo,
)
from slipstream.errors import ConfigError, SlipstreamError

# Files in the folder that are no files of the bucket.
_OWN = (MEMO, f"{MEMO}.new", PARTIAL)


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


@dataclass(frozen=True, kw_only=True, slots=True)
class SentFiles:
    """The files that were written to a bucket.

    Args:
        count: Number of written files.
        conflicts: Names of those that were written beside the bucket's own newer files.
        failures: Paths of files that could not be written, each with the reason.
    """

    count: int
    conflicts: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()


def bring(url: str, folder: Path) -> int:
    """Copy the files of a bucket to a folder; a second call copies new and changed ones.

    A file that was changed here stays while the bucket's is the one that was brought. Otherwise it
    moves aside, to a name with `.conflict-`.

    Args:
        url: URL that fsspec understands; a bucket or folder that does not exist yet is empty.
        folder: Folder, which is made.

    Returns:
        The number of copied files.

    Raises:
        ConfigError: fsspec, or the package for this kind of URL, is not installed; the URL is that
            of a file; a name in the bucket cannot be one in the folder. Nothing was copied.
    """
    system, root = _open(url)
    folder.mkdir(parents=True, exist_ok=True)
    listed = _listed(system, root, url)
    _check_names(list(listed), url, folder)
    brought = read_memo(folder)
    count = 0
    try:
        for path, version in listed.items():
            target, known = folder / path, brought.get(path, BroughtFile())
            if target.exists() and version and known.there == version:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            system.get_file(f"{root}/{path}", str(folder / PARTIAL))
            _move_in(folder / PARTIAL, target, known)
            brought[path] = BroughtFile(version_here(target), version)
            count += 1
    finally:
        write_memo(folder, brought)
    return count


def send_back(url: str, folder: Path) -> SentFiles:
    """Write new and changed files of a folder to the bucket; nothing in the bucket is lost.

    A file whose version in the bucket is not the one that was brought stays there as it is; the one
    of the folder is written beside it, with `.conflict-` and its time in the name.

    Args:
        url: URL that fsspec understands.
        folder: Folder that `bring` has filled.

    Returns:
        What was written. A file that cannot be written does not keep others from it.

    Raises:
        ConfigError: fsspec, or the package for this kind of URL, is not installed; the URL is that
            of a file.
    """
    system, root = _open(url)
    listed = _listed(system, root, url)
    brought = read_memo(folder)
    count, conflicts, failures = 0, list[str](), list[str]()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        path, here = str(file.relative_to(folder)), version_here(file)
        known = brought.get(path, BroughtFile())
        if path in _OWN or known.here == here:
            continue
        is_conflict = path in listed and known.there != (listed[path] or None)
        name = conflict_name(path, file) if is_conflict else path
        try:
            facts = _write(system, file, f"{root}/{name}")
        except Exception as error:  # noqa: BLE001 - every store has errors of its own
            failures.append(f"{path} ({error})")
            continue
        brought[path] = BroughtFile(here, known.there if is_conflict else version_there(facts))
        conflicts += [name] if is_conflict else []
        count += 1
    write_memo(folder, brought)
    return SentFiles(count=count, conflicts=tuple(conflicts), failures=tuple(failures))


def _write(system: Any, file: Path, path: str) -> dict[str, Any]:
    """Write a file to the bucket; return its facts there."""
    system.makedirs(os.path.dirname(path), exist_ok=True)
    system.put_file(str(file), path)
    system.invalidate_cache()
    return system.info(path)


def _move_in(partial: Path, target: Path, known: BroughtFile) -> None:
    """Move a download to its place; a file there that was changed here moves aside."""
    is_changed = target.exists() and version_here(target) != known.here
    if is_changed and not filecmp.cmp(partial, target, shallow=False):
        target.replace(target.with_name(conflict_name(target.name, target)))
    partial.replace(target)


def _check_names(paths: Sequence[str], url: str, folder: Path) -> None:
    """Check that each file of a bucket can be one in the folder."""
    inside, files = folder.resolve(), set(paths)
    for path in paths:
        target = folder / path
        above = {str(parent) for parent in PurePosixPath(path).parents}
        if ".." in path.split("/") or not target.resolve().is_relative_to(inside):
            problem = f"it would be outside of {folder}"
        elif path in _OWN:
            problem = "this name is that of a file of Slipstream"
        elif above & files or target.is_dir():
            problem = "it would be both a file and a folder"
        else:
            continue
        raise ConfigError(
            f"the bucket {url} has a file {path!r} that cannot be brought: {problem}; rename it, or"
            " name another folder of the bucket"
        )


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


def _listed(system: Any, root: str, url: str) -> dict[str, str]:
    """Return the version of each file below a path; names with a slash at the end are folders."""
    system.invalidate_cache()
    found: dict[str, dict[str, Any]] = system.find(root, detail=True)
    if root in found and found[root]["size"]:
        raise ConfigError(f"the bucket {url} is a file; name the folder that has it")
    return {
        path[len(root) :].lstrip("/"): version_there(facts)
        for path, facts in found.items()
        if not path.endswith("/") and path != root
    }


def main() -> None:
    """Bring the bucket of the URL on the command line to the folder there."""
    os.environ.update(json.load(sys.stdin))
    try:
        print(bring(sys.argv[1], Path(sys.argv[2])))
    except SlipstreamError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
