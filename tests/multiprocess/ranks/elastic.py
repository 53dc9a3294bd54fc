"""Elastic training whose result shows whether every step was applied once: `elastic.py STEPS`.

Each step adds one to the weights, on all ranks together. A line of JSON
for each epoch says who is there. Variables ELASTIC_* let a rank do something wrong.
"""

import json
import logging
import os
import signal
import sys
import time

import numpy as np

from slipstream import comm
from slipstream.comm import elastic

STEPS = int(sys.argv[1])
FAILS_AT = int(os.environ.get("ELASTIC_FAILS_AT", "-1"))
IN_RESET = os.environ.get("ELASTIC_IN_RESET", "")  # "die" or "commit"
SAVES_AT_10 = int(os.environ.get("ELASTIC_SAVES_AT_10", "0"))
DIES_AT = os.environ.get("ELASTIC_DIES_AT", "")  # words of the log
RESTS = float(os.environ.get("ELASTIC_RESTS", "0"))  # seconds after the last step
FORKS = "ELASTIC_FORKS" in os.environ
RUNS = int(os.environ.get("ELASTIC_RUNS", "1"))
STEP_SECONDS = 0.005


def report(**values: object) -> None:
    print(json.dumps({"pid": os.getpid(), "rank": comm.rank(), "size": comm.size()} | values))


class DyingHandler(logging.Handler):
    """Kill this process when certain words are logged."""

    def emit(self, record: logging.LogRecord) -> None:
        if DIES_AT and DIES_AT in record.getMessage():
            os.kill(os.getpid(), signal.SIGKILL)


@elastic.run
def train(state: elastic.ObjectState) -> None:
    if FORKS and state.step == 0 and os.fork() == 0:  # as the workers of a data loader are made
        time.sleep(60)
        os._exit(0)
    report(step=state.step, epoch=elastic.session().epoch.number)
    while state.step < STEPS:
        gradient = np.ones(1000)
        comm.allreduce(gradient, "average")
        time.sleep(STEP_SECONDS)
        state.weights += gradient
        state.step += 1
        if state.step == FAILS_AT:
            raise ValueError("the script is wrong")
        for _ in range(SAVES_AT_10 if state.step == 10 else 0):
            state.save()
        state.commit()
    if RESTS:
        report(rests=RESTS)
        time.sleep(RESTS)


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    logging.getLogger().addHandler(DyingHandler())
    for _ in range(RUNS):
        run()


def run() -> None:
    state = elastic.ObjectState(weights=np.zeros(1000), step=0)
    if IN_RESET == "die":
        state.register_reset_callbacks([lambda: os.kill(os.getpid(), signal.SIGKILL)])
    if IN_RESET == "commit":
        state.register_reset_callbacks([state.commit])
    train(state)
    assert (state.weights == STEPS).all(), state.weights
    report(done=state.step)


if __name__ == "__main__":
    main()
