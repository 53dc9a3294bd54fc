"""The names of outputs; `python -m slipstream.cluster.head.storage.output_names FOLDER PATTERN...`.

This writes them as JSON in ASCII, so that a name may have any bytes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath

from slipstream.errors import ConfigError


@dataclass(slots=True)
class OutputNames:
    """The names of outputs.

    Attributes:
        names: Paths that were found, relative to the folder of the code.
        unmatched: Patterns that match nothing.
        outside: Paths that a link leads out of the folder; they are no outputs.
    """

    names: list[str] = field(default_factory=list[str])
    unmatched: list[str] = field(default_factory=list[str])
    outside: list[str] = field(default_factory=list[str])

    def refuse_outside(self) -> None:
        """Tell of paths that a link leads out of the folder.

        Raises:
            ConfigError: there are some.
        """
        if self.outside:
            raise ConfigError(
                "outputs that a link leads out of the folder of the code were left out:"
                f" {', '.join(self.outside)}; the other outputs are there"
            )


def checked_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return patterns of outputs if all of them are below the folder of the code.

    Raises:
        ValueError: one of them is empty or an absolute path, goes up, or is no pattern.
    """
    for pattern in patterns:
        path = PurePosixPath(pattern)
        is_wild = any("**" in part and part != "**" for part in path.parts)
        if not pattern or "\0" in pattern or path.is_absolute() or ".." in path.parts or is_wild:
            raise ValueError(
                f"{pattern!r} is no output; allowed: paths below the folder of the code, without"
                " .., and with ** as a whole name only"
            )
    return patterns


def find_outputs(folder: Path, patterns: Sequence[str]) -> OutputNames:
    """Return the files, folders and links that some patterns name; a folder stands for its files.

    Args:
        folder: Folder of the code.
        patterns: Paths relative to it; patterns of a shell are allowed.
    """
    found = OutputNames()
    root = folder.resolve()
    for pattern in patterns:
        paths = _matches(folder, pattern)
        if not paths:
            found.unmatched.append(pattern)
        for path in paths:
            name = str(path.relative_to(folder))
            is_inside = path == folder or path.parent.resolve().is_relative_to(root)
            (found.names if is_inside else found.outside).append(name)
    found.names = sorted(set(found.names))
    return found


def _matches(folder: Path, pattern: str) -> list[Path]:
    """Return what a pattern names; a file with just this name comes first, such as `a[1].txt`."""
    path = folder / pattern
    if os.path.lexists(path):
        return [path]
    return list(folder.glob(pattern))


def main() -> None:
    """Write what the command line asks for."""
    folder, *patterns = sys.argv[1:]
    sys.stdout.write(json.dumps(asdict(find_outputs(Path(folder), patterns))))


if __name__ == "__main__":
    main()
