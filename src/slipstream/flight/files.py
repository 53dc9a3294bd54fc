"""The files in a folder of flight records.

An elastic job has a folder in it for each epoch that ended with a fault.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path

DEFAULT_FOLDER = "slipstream-flight"
LAUNCHER = "launcher.json"

# Folders that are kept: a job that goes on may have hundreds of faults. The first ones show how
# the trouble began.
FIRST_KEPT = 4
NEWEST_KEPT = 12

_FOLDER = re.compile(r"epoch-\d{4,}-\w+")
_RECORDS = ("rank-*.json", "rank-*.crash.txt", LAUNCHER)
_DROPPED = "dropped.txt"


def record_path(folder: Path, rank: int) -> Path:
    """Return the path of a rank's record."""
    return folder / f"rank-{rank:04}.json"


def crash_path(folder: Path, rank: int) -> Path:
    """Return the path of the file with the stacks of a rank that a fatal signal ended.

    The file exists, without content, while the rank runs.
    """
    return folder / f"rank-{rank:04}.crash.txt"


def epoch_crash_path(folder: Path, epoch: str, rank: int) -> Path:
    """Return the path of such a file in an elastic job; it lies beside the folder of the epoch.

    Args:
        folder: Folder of the job.
        epoch: Name of the folder of the epoch, which exists only after a fault.
        rank: Rank in the epoch.
    """
    return folder / f"{epoch}.rank-{rank:04}.crash.txt"


def epoch_of_crash(path: Path) -> Path:
    """Return the folder of the epoch beside which the file of a crash lies."""
    return path.with_name(path.name.partition(".rank-")[0])


def launcher_path(folder: Path) -> Path:
    """Return the path of the file in which the launcher states how the ranks ended."""
    return folder / LAUNCHER


def epoch_folder(number: int, title: str) -> str:
    """Return the name of the folder for the records of an epoch."""
    tail = re.sub(r"\W", "", title.partition("-")[2]) or "x"
    return f"epoch-{number:04}-{tail}"


def epoch_folders(folder: Path) -> list[Path]:
    """Return the folders of epochs in a folder of records, the oldest first."""
    dated: list[tuple[float, str, Path]] = []
    for path in folder.glob("epoch-*"):
        with contextlib.suppress(OSError):  # another process has removed it
            if _FOLDER.fullmatch(path.name) and path.is_dir():
                dated.append((path.stat().st_mtime, path.name, path))
    return [path for *_, path in sorted(dated)]


def job_folders(folder: Path) -> list[Path]:
    """Return the folders of jobs in a folder, the oldest first; [] in the folder of one job."""
    if has_records(folder) or not folder.is_dir():
        return []
    jobs = (path for path in folder.iterdir() if path.is_dir() and has_records(path))
    return sorted(jobs, key=lambda path: path.stat().st_mtime)


def has_records(folder: Path) -> bool:
    """Return whether a folder is that of a job with a fault; it is empty while a job runs well."""
    files = (path for each in _RECORDS for path in folder.glob(each))
    return any(path.stat().st_size for path in files) or bool(epoch_folders(folder))


def drop_excess(folder: Path) -> None:
    """Remove all folders of epochs but the first and the newest ones, and note their names.

    Several processes may do so at the same time: the one that can rename a folder removes it.

    Raises:
        OSError: the note cannot be written.
    """
    folders = epoch_folders(folder)
    for path in folders[FIRST_KEPT : max(FIRST_KEPT, len(folders) - NEWEST_KEPT)]:
        gone = path.with_name(f".{path.name}")
        try:
            path.rename(gone)
        except OSError:  # another process removes it
            continue
        shutil.rmtree(gone, ignore_errors=True)
        with (folder / _DROPPED).open("a") as note:
            note.write(f"{path.name}\n")


def num_dropped(folder: Path) -> int:
    """Return how many folders of epochs have been removed because there were many."""
    try:
        return len(set((folder / _DROPPED).read_text().split()))
    except OSError:
        return 0
