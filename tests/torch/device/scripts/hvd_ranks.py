"""What the scripts for Horovod's API begin with: the test device, and a job of the ranks.

The checks are those of tools/gpu_check, which runs them on real GPUs.
"""

import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import ranks
import teststream
import torch

os.environ.setdefault("SLIPSTREAM_JOB_KEY", "a key for these tests")

import slipstream.horovod.torch as hvd

sys.path.insert(0, str(Path(__file__).parents[4] / "tools/gpu_check/ranks"))

import hvd_results

TARGET = hvd_results.Target(ranks.DEVICE, ranks.keep_busy)


def prepare() -> None:
    """Register the test device with PyTorch and with Slipstream."""
    rank = int(os.environ["RANK"])
    teststream.load(Path(os.environ["TESTSTREAM_LIBRARY"]))
    teststream.configure(ranks.LONGEST_DELAY, seed=rank + 1)
    random.seed(rank)
    torch.manual_seed(5)


def start() -> None:
    """Join the job."""
    prepare()
    hvd.init(process_sets="dynamic")


def run(checks: Sequence[Callable[[hvd_results.Target], None]]) -> None:
    """Run checks, and print the time of each in case a later one fails."""
    for check in checks:
        begin = time.monotonic()
        check(TARGET)
        print(f"{check.__name__}: {time.monotonic() - begin:.2f} s", flush=True)


def finish() -> None:
    """Check that the device has found no misuse, and leave the job."""
    teststream.synchronize()
    assert not teststream.describe(), teststream.describe()
    hvd.shutdown()
