"""Horovod over gloo in replays, without Horovod's launcher.

The ranks are already running when Horovod starts. Horovod needs its own environment variables to
identify ranks, and a rendezvous server that its launcher would run. In a replay, rank 0 runs the
rendezvous server, and torch.distributed broadcasts the server's port.
"""

# Horovod has no type annotations.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportMissingImports=false, reportUnknownArgumentType=false

from __future__ import annotations

import atexit
import os

import torch
import torch.distributed as dist

from slipstream.bench.replay.module import ReplayModule
from slipstream.settings import detect_launcher


def distributed(
    optimizer: torch.optim.Optimizer, module: ReplayModule, *, fp16: bool
) -> torch.optim.Optimizer:
    """Return an optimizer that sums gradients with Horovod; all ranks must call this function.

    Args:
        optimizer: Optimizer that updates this rank's parameters.
        module: Module that owns the parameters.
        fp16: Whether gradients are sent as fp16.
    """
    import horovod.torch as hvd

    _join()
    compression = hvd.Compression.fp16 if fp16 else hvd.Compression.none
    return hvd.DistributedOptimizer(
        optimizer, named_parameters=module.named_parameters(), compression=compression
    )


def _join() -> None:
    import horovod.torch as hvd
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.gloo_run import create_slot_env_vars
    from horovod.runner.http.http_server import RendezvousServer

    size = dist.get_world_size()
    hosts = parse_hosts(",".join(f"host{rank}:1" for rank in range(size)))
    slots = get_host_assignments(hosts, size)
    port: list[int] = [0]
    if dist.get_rank() == 0:
        server = RendezvousServer()
        port = [server.start()]
        server.init(slots)
        atexit.register(server.stop)
    dist.broadcast_object_list(port)
    os.environ.update(create_slot_env_vars(slots[dist.get_rank()]))
    os.environ.update(
        HOROVOD_GLOO_RENDEZVOUS_ADDR=detect_launcher(os.environ).master_addr,
        HOROVOD_GLOO_RENDEZVOUS_PORT=str(port[0]),
    )
    hvd.init()
