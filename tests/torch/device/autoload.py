"""Registers the test device in every process that imports PyTorch.

PyTorch calls `register` at the end of its import, as it does for packages of devices: through an
entry point of the group "torch.backends", which the tests write.
"""

from __future__ import annotations

import os
from pathlib import Path

import teststream


def register() -> None:
    """Register the device, whose library TESTSTREAM_LIBRARY names."""
    teststream.load(Path(os.environ["TESTSTREAM_LIBRARY"]))
