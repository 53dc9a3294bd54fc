"""Training in PyTorch that goes on when ranks are lost, leave, or join.

    from slipstream.train import elastic

    elastic.init()
    state = elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0)

    @elastic.run
    def train(state):
        wrapped = DistributedDataParallel(state.model)     # or slipstream.torch.overlap(...)
        while state.epoch < 10:
            for x, y in loader:
                ...
                state.sampler.record_batch(0, len(x))
                state.commit()
            state.epoch += 1
            state.sampler.set_epoch(state.epoch)
            state.commit()

    train(state)

PyTorch's default process group is made anew for each epoch of the job, on the connections that the
ranks have. So DistributedDataParallel and slipstream.torch.overlap are called inside the function,
which is called again after each change.

A model of FSDP2 and a ZeroRedundancyOptimizer belong to a `ShardedState` in place of a TorchState.
"""

from slipstream.comm.elastic import LeftError as LeftError
from slipstream.comm.elastic import MembershipChanged as MembershipChanged
from slipstream.horovod.torch.elastic import ElasticSampler as ElasticSampler
from slipstream.horovod.torch.elastic import TorchState as TorchState
from slipstream.train.elastic.peer_copies import ShardsLostError as ShardsLostError
from slipstream.train.elastic.sharded_state import ShardedState as ShardedState
from slipstream.train.elastic.training import init as init
from slipstream.train.elastic.training import run as run
