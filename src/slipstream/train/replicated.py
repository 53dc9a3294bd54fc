"""One optimizer for the replicas of all ranks."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

import slipstream.horovod.torch as hvd


def ReplicatedVarsOptimizer(  # noqa: N802  PAISoar's name
    optimizer: Optimizer, compression: type[Any] = hvd.Compression.none
) -> Any:
    """Make the training of one process data-parallel. Blocks until all ranks are there.

    Joins the job, gives the parameters and the state of rank 0 to all ranks, and has `step()`
    average the gradients of all, which are sent while backward runs. Every rank goes on to read
    what its script reads: no data are sharded (torch.utils.data.distributed.DistributedSampler
    does that), and buffers, such as those of batch normalisation, are each rank's own.

    Args:
        optimizer: Optimizer of all trained parameters, which are on the CPU.
        compression: Compression of gradients between hosts, a member of `hvd.Compression`.

    Returns:
        An optimizer of the same class; use it in place of the one that was passed.

    Raises:
        ConfigError, PeerTimeoutError: the job cannot be joined.
    """
    hvd.init()
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    hvd.broadcast_parameters(parameters, root_rank=0)
    if any(hvd.allgather_object(bool(optimizer.state))):
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return hvd.DistributedOptimizer(optimizer, compression=compression)
