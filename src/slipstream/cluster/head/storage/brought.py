"""The memo of a bucket's folder: which version of each file was brought, and what it was here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

# File in the folder with the memo, and the one that a download is written to first.
MEMO = ".slipstream-bucket.json"
PARTIAL = ".slipstream-bucket.part"

# Facts by which stores tell versions of a file apart, the surest ones first.
_STAMPS = (
    "ETag",
    "etag",
    "md5Hash",
    "generation",
    "LastModified",
    "last_modified",
    "updated",
    "mtime",
    "modificationTime",
    "modified",
    "modify",
    "last_write_time",
    "created",
)


@dataclass(frozen=True, slots=True)
class BroughtFile:
    """A file that is both here and in the bucket.

    Args:
        here: Size and time of the file here; "" if the file is not known.
        there: Version of the bucket's file; "" if it is not known.
    """

    here: str = ""
    there: str = ""


def version_there(facts: Mapping[str, Any]) -> str:
    """Return the version of a bucket's file; "" if its store tells neither a hash nor a time.

    Args:
        facts: Facts that fsspec's `info` returns.
    """
    stamps = [f"{name} {facts[name]}" for name in _STAMPS if facts.get(name)]
    return f"{facts['size']} bytes, {stamps[0]}" if stamps else ""


def version_here(path: Path) -> str:
    """Return the size and the time of a file here; "" if there is none.

    Args:
        path: File.
    """
    if not path.is_file():
        return ""
    facts = path.stat()
    return f"{facts.st_size} bytes, {facts.st_mtime_ns}"


def conflict_name(path: str, file: Path) -> str:
    """Return the name for a file that was changed here while the bucket's was changed, too.

    Args:
        path: Path in the bucket.
        file: File here, whose time is in the name, so that the same file keeps it.
    """
    changed = datetime.fromtimestamp(file.stat().st_mtime, timezone.utc)
    return f"{path}.conflict-{changed:%Y%m%dT%H%M%S.%f}"


def read_memo(folder: Path) -> dict[str, BroughtFile]:
    """Return the memo of a folder; it is empty if there is none.

    Args:
        folder: Folder of a bucket.
    """
    path = folder / MEMO
    entries: dict[str, list[str]] = json.loads(path.read_text()) if path.exists() else {}
    return {name: BroughtFile(*map(str, versions)) for name, versions in entries.items()}


def write_memo(folder: Path, brought: Mapping[str, BroughtFile]) -> None:
    """Write the memo of a folder.

    Args:
        folder: Folder of a bucket.
        brought: Files by their paths in the bucket.
    """
    temporary = folder / f"{MEMO}.new"
    temporary.write_text(json.dumps({name: astuple(file) for name, file in brought.items()}))
    temporary.replace(folder / MEMO)
