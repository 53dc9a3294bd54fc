"""Train until the folder of the first argument has the file `stop`; other files order faults.

`raise` in a file's name lets the rank with this number raise an exception, once: `raise.0`. `crash`
lets it crash in native code.
"""

import ctypes
import os
import sys
import time
from pathlib import Path

import numpy as np

from slipstream import comm
from slipstream.comm import elastic

folder = Path(sys.argv[1])
state = elastic.ObjectState(steps=0, is_over=False)


def read_sample() -> None:
    order = folder / f"raise.{comm.rank()}"
    if order.exists():
        order.unlink()
        raise ValueError("bad sample 17")
    order = folder / f"crash.{comm.rank()}"
    if order.exists():
        order.unlink()
        ctypes.string_at(0)


@elastic.run
def train(state: elastic.ObjectState) -> None:
    """Train until all ranks know that the file `stop` is there."""
    epoch = elastic.session().epoch.number
    print(f"epoch {epoch}: rank {comm.rank()} of {comm.size()} is {os.getpid()};", flush=True)
    while not state.is_over:
        read_sample()
        stops = comm.allreduce(np.array([(folder / "stop").exists()]), "max", name="gradient")
        state.steps += 1
        state.is_over = bool(stops[0])
        time.sleep(0.01)
        state.commit()


train(state)
