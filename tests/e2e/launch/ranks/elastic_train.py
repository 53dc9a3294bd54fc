"""Train with slipstream.comm.elastic until the file of the first argument is there.

Each rank adds the mean of ones to its weights, so the weights count the steps. It says its place
whenever that has changed. With `late`, a process that joined ends a second after the others. With
`hold=FILE`, there is no commit as long as the file is there.
"""

import os
import sys
import time
from pathlib import Path

import numpy as np

from slipstream import comm
from slipstream.comm import elastic

stop = Path(sys.argv[1])
hold = next((Path(each[5:]) for each in sys.argv if each.startswith("hold=")), None)
state = elastic.ObjectState(weights=np.zeros(1), steps=0, is_over=False)


@elastic.run
def train(state: elastic.ObjectState) -> None:
    """Train until all ranks know that the file is there."""
    print(f"rank {comm.rank()} of {comm.size()}, process {os.getpid()}", flush=True)
    while not state.is_over:
        sums = comm.allreduce(np.array([1.0, stop.exists()]), "sum")
        state.weights += sums[0] / comm.size()
        state.steps += 1
        state.is_over = bool(sums[1])
        time.sleep(0.01)
        if hold is None or not comm.allreduce(np.array([hold.exists()]), "max")[0]:
            state.commit()
        elif state.steps % 10 == 0:
            print("holds its commits", flush=True)


train(state)
assert state.weights[0] == state.steps, state.weights
if "late" in sys.argv and "RANK" not in os.environ:
    time.sleep(1)
print(f"trained as rank {comm.rank()} of {comm.size()}", flush=True)
