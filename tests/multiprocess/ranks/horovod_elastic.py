"""Elastic training with Horovod's names, which checks its result: `horovod_elastic.py EPOCHS`.

The loss is linear in the one weight, and every sample has the value 1, so each step adds the
learning rate 1 to the weight. The sampler tells which samples were processed; each is counted by
an allreduce in the state. At the end each sample of each epoch was counted once. A line of JSON per
epoch of the job says who is there, and what this process has open.
"""

import json
import logging
import os
import sys
import threading
import time
from pathlib import Path

import torch

import slipstream.horovod.torch as hvd
from slipstream.comm import elastic

EPOCHS = int(sys.argv[1])
STEP_SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 0.01
SAMPLES = 48
BATCH = 1


def num_files() -> int:
    """Return the number of open files, which lost ranks' connections belong to for a while."""
    counts: list[int] = []
    for _ in range(10):
        counts.append(len(list(Path("/proc/self/fd").iterdir())))
        time.sleep(0.05)
    return min(counts)


def report(**values: object) -> None:
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    open_ = {"threads": threading.active_count(), "files": num_files(), "resident": resident}
    print(json.dumps({"pid": os.getpid(), "rank": hvd.rank(), "size": hvd.size()} | open_ | values))


def count_samples(indices: list[int]) -> torch.Tensor:
    counts = torch.zeros(SAMPLES)
    counts[indices] = 1
    return hvd.allreduce(counts, op=hvd.Sum, name="samples")


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    report(epoch=elastic.session().epoch.number, start=state.sampler.processed_num)
    while state.epoch < EPOCHS:
        for batch, index in enumerate(state.sampler):
            optimizer.zero_grad()
            (-model.weight.sum()).backward()
            optimizer.step()
            state.counts = state.counts + count_samples([index])
            time.sleep(STEP_SECONDS)
            state.steps += 1
            state.sampler.record_batch(batch, BATCH)
            state.commit()
        assert (state.counts >= 1).all(), state.counts  # none was lost
        assert state.counts.sum() - SAMPLES < hvd.size(), state.counts  # only the padding is twice
        state.counts = torch.zeros(SAMPLES)
        state.epoch += 1
        state.sampler.set_epoch(state.epoch)
        state.commit()


logging.basicConfig(level=logging.INFO)
torch.set_num_threads(1)
hvd.init()
model = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
state = hvd.elastic.TorchState(
    model=model,
    optimizer=optimizer,
    sampler=hvd.elastic.ElasticSampler(range(SAMPLES)),
    epoch=0,
    steps=0,
    counts=torch.zeros(SAMPLES),
)
train(state)
assert model.weight.item() == state.steps, (model.weight.item(), state.steps)
report(done=state.epoch, steps=state.steps)
