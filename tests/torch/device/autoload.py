"""Registers the test device in every process that imports PyTorch, as a package of a device would.

PyTorch loads the entry points of the group "torch.backends" when it is imported. `installed` writes
the metadata of such a package.
"""

from __future__ import annotations

import os
from pathlib import Path

import teststream

HERE = Path(__file__).parent
LIBRARY = "TESTSTREAM_LIBRARY"


def register() -> None:
    """Register the device; PyTorch calls this at the end of its import."""
    teststream.load(Path(os.environ[LIBRARY]))


def installed(folder: Path, library: str) -> dict[str, str]:
    """Write a package's metadata into a folder; return the variables of processes that use it."""
    metadata = folder / "teststream-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: teststream\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text("[torch.backends]\nteststream = autoload:register\n")
    return {"PYTHONPATH": f"{HERE}{os.pathsep}{folder}", LIBRARY: library}
