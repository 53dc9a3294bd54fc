"""Files that a command is to write, looked at before it computes for minutes."""

from __future__ import annotations

from pathlib import Path

from slipstream.errors import UsageError


def writable(path: Path | None) -> Path | None:
    """Return what an option names; its folder is made.

    None and - are no files. A file that is there stays as it is, and none is left where there was
    none.

    Raises UsageError for a file that cannot be written, with the reason.
    """
    if path is None or path == Path("-"):
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        was_there = path.exists()
        with path.open("ab"):
            pass
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(f"{path} cannot be written: {path.parent} is no folder") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
    if not was_there:
        path.unlink()
    return path
