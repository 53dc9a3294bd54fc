"""The code of a job, as an archive and a list of sources, becomes a folder on this host."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipstream.cluster.head.storage.fetch import fetch
from slipstream.errors import ConfigError

ARCHIVE = "code.tar.gz"
SOURCES = "sources.json"
CODE = "code"


def unpack_code(files: Mapping[str, bytes], code: Path) -> None:
    """Bring the code, the data and the user's set-up to a folder.

    Args:
        files: Contents of ARCHIVE, unless the code comes from git, and of SOURCES.
        code: Folder for the code, which need not exist.

    Raises:
        ConfigError: a command of the set-up has failed.
    """
    code.mkdir(exist_ok=True)
    sources: dict[str, Any] = json.loads(files[SOURCES])
    if sources["git"]:
        _run(["git", "init", "-q"], code)
        _run(["git", "fetch", "-q", "--depth", "1", sources["git"], sources["commit"]], code)
        _run(["git", "checkout", "-q", "FETCH_HEAD"], code)
    else:
        with tarfile.open(fileobj=io.BytesIO(files[ARCHIVE])) as archive:
            archive.extractall(code)  # the client of this run has made it
    for source, path in sources["data"]:
        fetch(source, code / path)
    if sources["setup"]:
        _run(["sh", "-e", "-c", sources["setup"]], code)


def _run(argv: list[str], folder: Path) -> None:
    done = subprocess.run(
        argv, cwd=folder, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        said = "; ".join(done.stderr.strip().splitlines()[-3:])
        raise ConfigError(f"{argv[0]} failed on the host: {said}")
