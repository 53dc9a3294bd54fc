"""Sums a number on all members at each step, so that a lost member is replaced: `STEPS`."""

import sys
import time

import numpy as np

from slipstream import comm
from slipstream.comm import elastic

STEPS = int(sys.argv[1])
STEP_SECONDS = 0.1


@elastic.run
def train(state: elastic.ObjectState) -> None:
    """Run the steps that are left."""
    while state.step < STEPS:
        value = np.ones(1)
        comm.allreduce(value)
        print(f"step {state.step} of {int(value[0])}", flush=True)
        time.sleep(STEP_SECONDS)
        state.step += 1
        state.commit()


train(elastic.ObjectState(step=0))
