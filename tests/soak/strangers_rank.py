"""One rank of the job that strangers.py attacks: `strangers_rank.py STEPS_PER_SECOND STOP_FILE`.

Each step computes for a while and sums 1 MB over all ranks, and begins at a fixed time, so that the
CPU seconds of a second do not depend on the load of the machine. The job ends at the step at which
any rank sees the stop file.
"""

import json
import logging
import os
import sys
import time
from pathlib import Path

import numpy as np

from slipstream import comm
from slipstream.comm import elastic

PERIOD = 1 / float(sys.argv[1])
STOP_FILE = Path(sys.argv[2])
STEPS_FILE = os.open(STOP_FILE.with_name("steps"), os.O_CREAT | os.O_RDWR)
COMPUTED = np.random.default_rng(0).normal(size=(300, 300))


@elastic.run
def train(state: elastic.ObjectState) -> None:
    print(json.dumps({"epoch": elastic.session().epoch.number, "rank": comm.rank()}), flush=True)
    gradient = np.ones(1 << 18, np.float32)
    due = time.monotonic()
    while True:
        for _ in range(15):
            COMPUTED @ COMPUTED
        gradient[:] = 1
        gradient[0] = STOP_FILE.exists()
        comm.allreduce(gradient)
        assert gradient[1] == comm.size(), "the sum is wrong"
        state.step += 1
        if comm.rank() == 0:
            os.pwrite(STEPS_FILE, b"%012d" % state.step, 0)
        state.commit()
        if gradient[0]:
            return
        due = max(due + PERIOD, time.monotonic() - PERIOD)
        time.sleep(max(0.0, due - time.monotonic()))


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    state = elastic.ObjectState(step=0)
    train(state)
    print(json.dumps({"done": state.step, "pid": os.getpid()}), flush=True)


if __name__ == "__main__":
    main()
