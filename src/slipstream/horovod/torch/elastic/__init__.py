"""Horovod's elastic training for PyTorch.

    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0, epoch=0)

    @hvd.elastic.run
    def train(state):
        while state.epoch < epochs:
            ...
            state.commit()

    train(state)

docs/horovod.md describes how to start such a script.
"""

from slipstream.horovod.common.elastic import ObjectState as ObjectState
from slipstream.horovod.common.elastic import State as State
from slipstream.horovod.common.elastic import run as run
from slipstream.horovod.torch.elastic.sampler import ElasticSampler as ElasticSampler
from slipstream.horovod.torch.elastic.state import TorchState as TorchState
from slipstream.horovod.torch.elastic.state import get_handler_registry as get_handler_registry
from slipstream.horovod.torch.elastic.state import set_handler_registry as set_handler_registry
