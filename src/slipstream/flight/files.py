"""The files in a folder of flight records."""

from __future__ import annotations

from pathlib import Path

LAUNCHER = "launcher.json"


def record_path(folder: Path, rank: int) -> Path:
    """Return the path of a rank's record."""
    return folder / f"rank-{rank:04}.json"


def crash_path(folder: Path, rank: int) -> Path:
    """Return the path of the file with the stacks of a rank that a fatal signal ended.

    The file exists, without content, while the rank runs.
    """
    return folder / f"rank-{rank:04}.crash.txt"


def launcher_path(folder: Path) -> Path:
    """Return the path of the file in which the launcher states how the ranks ended."""
    return folder / LAUNCHER
