"""Ranks that save while others die or leave: `checkpoint_elastic.py MODE FOLDER [RANK]`.

Modes "comm" and "torch" train elastically and save after every tenth step; the process that starts
as RANK is killed while it writes its file of step 10. In mode "outside", the Checkpointer is made
once, before the ranks change. In mode "leave", rank 1 leaves the job before it has written.
"""

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist

from slipstream import comm
from slipstream.train.checkpoint import Checkpointer
from slipstream.train.checkpoint.storage import LocalStorage

MODE, FOLDER = sys.argv[1:3]
KILLED = sys.argv[3] if len(sys.argv) > 3 else ""
STEPS = 40


def report(**values: object) -> None:
    print(json.dumps(values), flush=True)


def before_writing(call: Callable[[str], None]) -> None:
    """Call a function with the name of each file, before it is written."""
    real = LocalStorage.write

    def write(storage: LocalStorage, name: str, data: memoryview) -> None:
        call(name)
        real(storage, name, data)

    LocalStorage.write = write


def die(name: str) -> None:
    if name.startswith("step-00000010/") and name.endswith(".safetensors"):
        os.kill(os.getpid(), signal.SIGKILL)


def train(state) -> None:
    checkpointer = OUTSIDE or Checkpointer(FOLDER, keep=2)
    report(step=state.step, size=comm.size())
    while state.step < STEPS:
        if MODE == "torch":
            dist.all_reduce(torch.ones(4))
        else:
            comm.allreduce(np.ones(4))
        state.step += 1
        if state.step % 10 == 0:
            checkpointer.save(state.step, {"x": torch.ones(200_000), "step": state.step})
        state.commit()
        time.sleep(0.01)
    checkpointer.wait()
    report(whole=[entry.step for entry in checkpointer.list(verify=True) if entry.is_whole])


def leave() -> None:
    comm.init()
    checkpointer = Checkpointer(FOLDER)
    if comm.rank() == 1:
        before_writing(lambda name: time.sleep(2.0))
    checkpointer.save(1, {"x": torch.ones(200_000)})
    if comm.rank() == 1:
        comm.shutdown()
    checkpointer.wait()
    report(whole=[entry.step for entry in checkpointer.list(verify=True) if entry.is_whole])


OUTSIDE: Checkpointer | None = None

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    if os.environ["RANK"] == KILLED:
        before_writing(die)
    if MODE == "leave":
        leave()
    elif MODE == "torch":
        from slipstream.train import elastic

        elastic.init()
        elastic.run(train)(elastic.TorchState(step=0))
    else:
        from slipstream.comm import elastic as core

        comm.init()
        if MODE == "outside":
            OUTSIDE = Checkpointer(FOLDER)
        core.run(train)(core.ObjectState(step=0))
