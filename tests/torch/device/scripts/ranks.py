"""What every script here begins with: the test device, and groups of the ranks.

The backend "slipstream" is under test; "ordered" does the same in NCCL's order, so a script that
passes with both shows that they have the same semantics.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1]))

import ordered
import teststream

BACKEND = os.environ.get("TESTSTREAM_BACKEND", "slipstream")
DEVICE = f"{teststream.NAME}:0"
LONGEST_DELAY = 100e-6  # before each command of a stream, at random


def start(longest_delay: float = LONGEST_DELAY) -> tuple[int, int]:
    """Join the ranks' group, and return the rank of this process and the number of ranks."""
    rank = int(os.environ["RANK"])
    teststream.load(Path(os.environ["TESTSTREAM_LIBRARY"]))
    teststream.configure(longest_delay, seed=rank + 1)
    random.seed(rank)
    torch.manual_seed(5)
    ordered.register()
    dist.init_process_group(BACKEND)
    return rank, dist.get_world_size()


def keep_busy() -> None:
    """Give the current stream up to two milliseconds of work."""
    teststream.sleep(random.random() * 2e-3)


def finish() -> None:
    """Check that the device has found no misuse, and leave the group."""
    teststream.synchronize()
    assert not teststream.describe(), teststream.describe()
    dist.destroy_process_group()
