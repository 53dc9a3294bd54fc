"""The #include lines of C++ files, from which the files that a change affects are found."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)


def includes(path: Path, folders: Iterable[Path]) -> list[Path]:
    """Return the existing files that a file's #include lines may name.

    Args:
        path: Path of the file; its #include lines may name files in the same folder.
        folders: Other folders in which included files may be.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    candidates = [
        Path(os.path.normpath(folder / target))
        for target in INCLUDE.findall(text)
        for folder in (path.parent, *folders)
    ]
    return [candidate for candidate in candidates if candidate.is_file()]


def reachable(start: Iterable[Path], step: Callable[[Path], Iterable[Path]]) -> set[Path]:
    """Return the start paths and all paths that follow from them by repeated calls of `step`."""
    found: set[Path] = set()
    waiting = list(start)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += step(path)
    return found
