"""`python -m slipstream.cluster.head.storage.fetch URL FOLDER`: bring data here, by fsspec."""

from __future__ import annotations

import sys
from pathlib import Path

from slipstream.errors import ConfigError


def fetch(source: str, target: Path) -> None:
    """Copy a file or a folder to this host; a second call copies nothing.

    Args:
        source: URL that fsspec understands, such as "s3://bucket/folder".
        target: Folder on this host, which gets a file `.fetched` at the end.

    Raises:
        ConfigError: fsspec, or the package for this kind of URL, is not installed.
    """
    stamp = target / ".fetched"
    if stamp.exists() and stamp.read_text() == source:
        return
    try:
        import fsspec  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise ConfigError(
            "data from a URL needs fsspec on the hosts; add it to software.packages"
        ) from error
    target.mkdir(parents=True, exist_ok=True)
    system, path = fsspec.core.url_to_fs(source)  # pyright: ignore
    system.get(path, str(target), recursive=True)  # pyright: ignore
    stamp.write_text(source)


if __name__ == "__main__":
    fetch(sys.argv[1], Path(sys.argv[2]))
