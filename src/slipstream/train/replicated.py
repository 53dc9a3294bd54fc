"""Optimizer wrapper that keeps the model's copies on all ranks identical."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

import slipstream.horovod.torch as hvd


def ReplicatedVarsOptimizer(  # noqa: N802  PAISoar's name
    optimizer: Optimizer, compression: type[Any] = hvd.Compression.none
) -> Any:
    """Return an optimizer that turns the training of one process into data-parallel training.

    The call joins the job and copies the parameters and the optimizer state of rank 0 to all ranks.
    The call returns when all ranks have joined. `step()` then averages the gradients of all ranks,
    which are sent during the backward pass. The data are not divided among the ranks; use
    torch.utils.data.distributed.DistributedSampler for this. Buffers, such as the statistics of
    batch normalization, are not synchronized.

    Args:
        optimizer: Optimizer of all trained parameters, which must be on the CPU.
        compression: Compression of gradients between hosts, an attribute of `hvd.Compression`
            (default: none).

    Returns:
        An optimizer of the same class, which replaces the argument `optimizer`.

    Raises:
        ConfigError, PeerTimeoutError: The job cannot be joined.
    """
    hvd.init()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    hvd.broadcast_parameters(parameters, root_rank=0)
    if any(hvd.allgather_object(bool(optimizer.state))):
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    return hvd.DistributedOptimizer(optimizer, compression=compression)
