"""Horovod's API for PyTorch. A script for Horovod needs only its import line changed:

import slipstream.horovod.torch as hvd

hvd.init()
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)

docs/horovod.md is the guide for users of Horovod.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from slipstream.horovod.collectives import barrier as barrier
from slipstream.horovod.common.basics import add_process_set as add_process_set
from slipstream.horovod.common.basics import ccl_built as ccl_built
from slipstream.horovod.common.basics import cross_rank as cross_rank
from slipstream.horovod.common.basics import cross_size as cross_size
from slipstream.horovod.common.basics import cuda_built as cuda_built
from slipstream.horovod.common.basics import ddl_built as ddl_built
from slipstream.horovod.common.basics import gloo_built as gloo_built
from slipstream.horovod.common.basics import gloo_enabled as gloo_enabled
from slipstream.horovod.common.basics import is_homogeneous as is_homogeneous
from slipstream.horovod.common.basics import local_rank as local_rank
from slipstream.horovod.common.basics import local_size as local_size
from slipstream.horovod.common.basics import mpi_built as mpi_built
from slipstream.horovod.common.basics import mpi_enabled as mpi_enabled
from slipstream.horovod.common.basics import mpi_threads_supported as mpi_threads_supported
from slipstream.horovod.common.basics import nccl_built as nccl_built
from slipstream.horovod.common.basics import rank as rank
from slipstream.horovod.common.basics import remove_process_set as remove_process_set
from slipstream.horovod.common.basics import rocm_built as rocm_built
from slipstream.horovod.common.basics import size as size
from slipstream.horovod.common.basics import start_timeline as start_timeline
from slipstream.horovod.common.basics import stop_timeline as stop_timeline
from slipstream.horovod.common.exceptions import HorovodInternalError as HorovodInternalError
from slipstream.horovod.common.exceptions import HostsUpdatedInterrupt as HostsUpdatedInterrupt
from slipstream.horovod.common.process_sets import ProcessSet as ProcessSet
from slipstream.horovod.common.process_sets import global_process_set as global_process_set
from slipstream.horovod.init import init as _init
from slipstream.horovod.job import is_initialized as is_initialized
from slipstream.horovod.job import leave_job
from slipstream.horovod.objects import allgather_object as allgather_object
from slipstream.horovod.objects import broadcast_object as broadcast_object
from slipstream.horovod.reductions import Adasum as Adasum
from slipstream.horovod.reductions import Average as Average
from slipstream.horovod.reductions import Max as Max
from slipstream.horovod.reductions import Min as Min
from slipstream.horovod.reductions import Product as Product
from slipstream.horovod.reductions import Sum as Sum
from slipstream.horovod.submission import poll as poll
from slipstream.horovod.submission import synchronize as synchronize
from slipstream.horovod.torch.arrays import TorchArrays
from slipstream.horovod.torch.calls import allgather as allgather
from slipstream.horovod.torch.calls import allreduce as allreduce
from slipstream.horovod.torch.calls import allreduce_ as allreduce_
from slipstream.horovod.torch.calls import alltoall as alltoall
from slipstream.horovod.torch.calls import broadcast as broadcast
from slipstream.horovod.torch.calls import broadcast_ as broadcast_
from slipstream.horovod.torch.calls import grouped_allgather as grouped_allgather
from slipstream.horovod.torch.calls import grouped_allreduce as grouped_allreduce
from slipstream.horovod.torch.calls import grouped_allreduce_ as grouped_allreduce_
from slipstream.horovod.torch.calls import grouped_reducescatter as grouped_reducescatter
from slipstream.horovod.torch.calls import reducescatter as reducescatter
from slipstream.horovod.torch.calls import sparse_allreduce_async as sparse_allreduce_async
from slipstream.horovod.torch.compression import Compression as Compression
from slipstream.horovod.torch.functions import (
    broadcast_optimizer_state as broadcast_optimizer_state,
)
from slipstream.horovod.torch.functions import broadcast_parameters as broadcast_parameters
from slipstream.horovod.torch.ops import allgather_async as allgather_async
from slipstream.horovod.torch.ops import allreduce_async as allreduce_async
from slipstream.horovod.torch.ops import allreduce_async_ as allreduce_async_
from slipstream.horovod.torch.ops import alltoall_async as alltoall_async
from slipstream.horovod.torch.ops import broadcast_async as broadcast_async
from slipstream.horovod.torch.ops import broadcast_async_ as broadcast_async_
from slipstream.horovod.torch.ops import grouped_allgather_async as grouped_allgather_async
from slipstream.horovod.torch.ops import grouped_allreduce_async as grouped_allreduce_async
from slipstream.horovod.torch.ops import grouped_allreduce_async_ as grouped_allreduce_async_
from slipstream.horovod.torch.ops import (
    grouped_reducescatter_async as grouped_reducescatter_async,
)
from slipstream.horovod.torch.ops import join as join
from slipstream.horovod.torch.ops import reducescatter_async as reducescatter_async
from slipstream.horovod.torch.optimizer import DistributedOptimizer as DistributedOptimizer
from slipstream.horovod.torch.sync_batch_norm import SyncBatchNorm as SyncBatchNorm

shutdown = leave_job


def init(
    comm: Any = None,
    process_sets: Sequence[ProcessSet] | Literal["dynamic"] | None = None,
) -> None:
    """Connect this rank with all ranks of the job. A second call does nothing.

    The call blocks until all ranks have called init(). The launcher (`slipstream run`, torchrun,
    mpirun or srun) sets the rank and the number of ranks.

    Args:
        comm: List of all ranks of the job, or None. A list of only some ranks is refused; use a
            process set instead.
        process_sets: Process sets that exist from the beginning, the same on all ranks. "dynamic"
            or HOROVOD_DYNAMIC_PROCESS_SETS=1 lets add_process_set() add sets later.

    Raises:
        ValueError: `comm` lacks a rank of the job, or two process sets have the same ranks.
        ConfigError, AuthError, PeerTimeoutError: The job cannot be joined.
    """
    _init(TorchArrays(), comm, process_sets)


# At the end, because they import the names of this module.
from slipstream.horovod.torch import elastic as elastic  # noqa: E402
from slipstream.horovod.torch import mpi_ops as mpi_ops  # noqa: E402
