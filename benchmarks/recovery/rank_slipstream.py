"""One rank of elastic training with Slipstream; its commits stay in memory."""

from __future__ import annotations

import training
from torch.nn.parallel import DistributedDataParallel

from slipstream import comm
from slipstream.comm.elastic import session
from slipstream.train import elastic

elastic.init()
log = training.StepLog()
model = training.make_model()
state = elastic.TorchState(model=model, optimizer=training.make_optimizer(model), step=0)


@elastic.run
def train(state: elastic.TorchState) -> None:
    """Train until the benchmark ends the job."""
    wrapped = DistributedDataParallel(state.model)
    while state.step < training.STEPS:
        training.train_one_step(wrapped, state.optimizer)
        state.step += 1
        log.add(state.step, session().epoch.number, comm.rank(), comm.size())
        state.commit()


train(state)
