"""The code of a job as a few small files, for engines that copy no folders."""

from __future__ import annotations

import fnmatch
import gzip
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

from slipstream.cluster.control.plan import RunPlan
from slipstream.cluster.head.bundle import ARCHIVE, SOURCES


def bundle_files(plan: RunPlan) -> dict[str, bytes]:
    """Return the files that `unpack_code` makes the code of a run of, by their names.

    Args:
        plan: Run, whose data have URLs.
    """
    spec = plan.spec
    sources = {
        "git": spec.code.git,
        "commit": spec.code.commit,
        "data": [[item.source, item.path] for item in spec.data],
        "setup": spec.software.setup,
    }
    files = {SOURCES: json.dumps(sources).encode()}
    if not spec.code.git:
        files[ARCHIVE] = bundle_code(plan.code_folder, spec.code.exclude)
    return files


def bundle_code(folder: Path, exclude: Sequence[str]) -> bytes:
    """Return a folder as a gzipped tar archive; the same files give the same bytes.

    Args:
        folder: Folder of the code.
        exclude: Names and patterns of files and folders that are left out.
    """
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if not _is_excluded(name, exclude) and (path.is_file() or path.is_symlink()):
                archive.add(path, str(name), recursive=False, filter=_without_owner)
    return gzip.compress(plain.getvalue(), mtime=0)


def _is_excluded(name: Path, exclude: Sequence[str]) -> bool:
    """Return whether a pattern matches the path or, without a slash, one of its parts."""
    for pattern in exclude:
        bare = pattern.strip("/")
        if "/" in bare and fnmatch.fnmatch(str(name), f"{bare}*"):
            return True
        if "/" not in bare and any(fnmatch.fnmatch(part, bare) for part in name.parts):
            return True
    return False


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry
