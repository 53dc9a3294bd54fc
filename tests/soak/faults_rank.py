"""One rank of the training that faults.py disturbs: `faults_rank.py FOLDER STEP_SECONDS`.

The computation of a step is a pause, as if a GPU did it, so that the ranks of one machine do not
wait for its processors. The training ends when rank 0 finds the file `stop` in the folder.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from slipstream import comm
from slipstream.comm.elastic import session
from slipstream.train import elastic

FOLDER, STEP_SECONDS = Path(sys.argv[1]), float(sys.argv[2])
BATCH = 8  # samples of a rank in a step

log = (FOLDER / f"{os.getpid()}.log").open("w", buffering=1)


def note(*words: object) -> None:
    """Write one line for faults.py."""
    print(f"{time.time():.6f}", *words, file=log)


def step(wrapped: torch.nn.Module, state: elastic.TorchState) -> bool:
    """Train on one batch; return whether the training goes on."""
    state.optimizer.zero_grad()
    wrapped(torch.randn(BATCH, 64)).square().mean().backward()
    time.sleep(STEP_SECONDS)
    ends = np.array([comm.rank() == 0 and (FOLDER / "stop").exists()], np.int32)
    comm.allreduce(ends, "max")
    state.optimizer.step()
    state.samples += BATCH * comm.size()
    state.step += 1
    return not ends[0]


def main() -> None:
    """Train until faults.py ends it."""
    torch.set_num_threads(1)
    note("up")
    elastic.init()
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    state = elastic.TorchState(model=model, optimizer=optimizer, step=0, samples=0, goes_on=1)

    @elastic.run
    def train(state: elastic.TorchState) -> None:
        number, host = session().epoch.number, session().me.address.rpartition(":")[0]
        note("in", number, comm.rank(), comm.size(), host)
        wrapped = DistributedDataParallel(state.model)
        while state.goes_on:
            state.goes_on = int(step(wrapped, state))
            note("step", number, state.step, comm.size())
            state.commit()

    train(state)
    note("end", state.step, state.samples)


main()
