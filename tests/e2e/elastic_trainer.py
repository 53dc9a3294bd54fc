"""Elastic training with Horovod's names: `elastic_trainer.py LOG [FAIL]`.

A file lists the hosts, and rank 0 writes a line of JSON per epoch. After an epoch for which the
log's folder has a file `hosts-after-EPOCH`, it puts this file in place of the list and waits for
news. With FAIL, the process with this first rank raises an error at the start of epoch 1.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch

import slipstream.horovod.torch as hvd

LOG = Path(sys.argv[1])
FAIL = sys.argv[2] if len(sys.argv) > 2 else ""
EPOCHS, BATCHES = 3, 5
NEWS_SECONDS = 30.0

hvd.init()
model = torch.nn.Linear(2, 1)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.01), named_parameters=model.named_parameters()
)


def log(state: hvd.elastic.TorchState) -> None:
    line = {
        "epoch": state.epoch,
        "size": hvd.size(),
        "host": os.environ["HOROVOD_HOSTNAME"],
        "first_rank": int(os.environ["HOROVOD_RANK"]),
        "calls": state.calls,
    }
    with LOG.open("a") as file:
        file.write(json.dumps(line) + "\n")


def change_hosts(state: hvd.elastic.TorchState) -> None:
    next_hosts = LOG.parent / f"hosts-after-{state.epoch}"
    if next_hosts.exists():
        next_hosts.rename(LOG.parent / "hosts")
        deadline = time.monotonic() + NEWS_SECONDS
        while state._host_messages.empty():
            assert time.monotonic() < deadline, "no news of other hosts"
            time.sleep(0.05)


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    state.calls += 1
    while state.epoch < EPOCHS:
        while state.batch < BATCHES:
            if (state.epoch, os.environ["HOROVOD_RANK"]) == (1, FAIL):
                raise ValueError("this rank fails on purpose")
            optimizer.zero_grad()
            model(torch.ones(4, 2)).sum().backward()
            optimizer.step()
            state.batch += 1
            state.commit()
        if hvd.rank() == 0:
            log(state)
            change_hosts(state)
        state.epoch += 1
        state.batch = 0
        state.commit()


torch.set_num_threads(1)
train(hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0, batch=0, calls=0))
