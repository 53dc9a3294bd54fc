"""Sums a number on all ranks at each step, and keeps the step in a file of rank 0's host.

Steps are counted from the last one that any host has kept, as a training does from a checkpoint.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np

from slipstream import comm


def main() -> None:
    """Run the steps; print each of them."""
    num_steps, seconds = int(sys.argv[1]), float(sys.argv[2])
    kept = Path("step.txt")
    group = comm.init()
    mine = int(kept.read_text()) if kept.exists() else 0
    steps = np.zeros(group.size, np.int64)
    steps[group.rank] = mine
    group.allreduce(steps)
    first = int(steps.max())
    print(f"start at step {first} with {group.size} ranks", flush=True)
    for step in range(first, num_steps):
        value = np.ones(1, np.float32)
        group.allreduce(value)
        assert value[0] == group.size
        kept.write_text(str(step + 1))
        print(f"step {step}", flush=True)
        time.sleep(seconds)
    if group.rank == 0:
        Path("result.txt").write_text(f"{num_steps} steps on {os.uname().nodename}\n")


main()
