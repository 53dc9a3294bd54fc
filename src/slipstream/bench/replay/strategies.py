"""Strategies of a replay: no communication, DDP over a backend, our optimizers, or Horovod.

A strategy is a function that maps a module to a function that runs one step. A step includes the
update by a real optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

# The first optimizer would import this module. If it is imported after init_process_group, it keeps
# a reference to the process group. The group's threads then live until the process ends, and
# sometimes abort it.
import torch._dynamo  # pyright: ignore[reportUnusedImport]
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

import slipstream.horovod.torch as slipstream_hvd
from slipstream.bench.replay import horovod as replay_horovod
from slipstream.bench.replay.module import ReplayModule
from slipstream.torch import compress, overlap

Step = Callable[[], None]
Strategy = Callable[[ReplayModule], Step]

CODECS = ("fp16", "int8")
LEARNING_RATE = 1e-6
MOMENTUM = 0.9


def compute_only(module: ReplayModule) -> Step:
    """Return a step without communication."""
    return _training_step(module, module, _optimizer(module))


def ddp(module: ReplayModule) -> Step:
    """Return a step with DDP, which sums gradients in place."""
    return _training_step(_wrapped(module), module, _optimizer(module))


def ddp_fp16(module: ReplayModule) -> Step:
    """Return a step with DDP and PyTorch's hook, which sends each bucket as fp16."""
    wrapped = _wrapped(module)
    wrapped.register_comm_hook(None, fp16_compress_hook)  # pyright: ignore[reportUnknownMemberType]
    return _training_step(wrapped, module, _optimizer(module))


def ddp_hook(codec: str) -> Strategy:
    """Return a strategy with DDP and our communication hook, which encodes gradients."""

    def strategy(module: ReplayModule) -> Step:
        wrapped = _wrapped(module)
        compress(wrapped, codec)
        return _training_step(wrapped, module, _optimizer(module))

    return strategy


def overlapped(codec: str, *, across_steps: bool) -> Strategy:
    """Return a strategy in which communication overlaps with the backward pass.

    Args:
        codec: Codec of gradients between hosts.
        across_steps: Whether communication also overlaps with the next forward pass.
    """

    def strategy(module: ReplayModule) -> Step:
        optimizer = _optimizer(module)
        overlap(module, optimizer, codec=codec, across_steps=across_steps)
        return _training_step(module, module, optimizer)

    return strategy


def hvd(compression: str) -> Strategy:
    """Return a strategy with Slipstream's version of Horovod's optimizer."""

    def strategy(module: ReplayModule) -> Step:
        slipstream_hvd.init()
        optimizer = slipstream_hvd.DistributedOptimizer(
            _optimizer(module),
            module.named_parameters(),
            compression=getattr(slipstream_hvd.Compression, compression),
        )
        return _training_step(module, module, optimizer)

    return strategy


def horovod(module: ReplayModule) -> Step:
    """Return a step with Horovod's optimizer."""
    return _horovod(module, fp16=False)


def horovod_fp16(module: ReplayModule) -> Step:
    """Return a step with Horovod's optimizer, which sends gradients as fp16."""
    return _horovod(module, fp16=True)


STRATEGIES: Mapping[str, Strategy] = {
    "compute-only": compute_only,
    "ddp": ddp,
    "ddp-fp16": ddp_fp16,
    "within": overlapped("none", across_steps=False),
    "across": overlapped("none", across_steps=True),
    "hvd": hvd("none"),
    **{f"hook-{codec}": ddp_hook(codec) for codec in CODECS},
    **{f"within-{codec}": overlapped(codec, across_steps=False) for codec in CODECS},
    **{f"across-{codec}": overlapped(codec, across_steps=True) for codec in CODECS},
    **{f"hvd-{codec}": hvd(codec) for codec in CODECS},
    "horovod": horovod,
    "horovod-fp16": horovod_fp16,
}


def _wrapped(module: ReplayModule) -> DistributedDataParallel:
    """Return the module in DDP, without copied gradients or a broadcast of initial parameters."""
    return DistributedDataParallel(module, gradient_as_bucket_view=True, init_sync=False)


def _horovod(module: ReplayModule, *, fp16: bool) -> Step:
    optimizer = replay_horovod.distributed(_optimizer(module), module, fp16=fp16)
    return _training_step(module, module, optimizer)


def _training_step(
    callee: torch.nn.Module, module: ReplayModule, optimizer: torch.optim.Optimizer
) -> Step:
    sparse = module.sparse_parameters()

    def step() -> None:
        for parameter in sparse:
            parameter.grad = None
        callee(torch.zeros((), device=module.place, requires_grad=True)).backward()
        optimizer.step()  # pyright: ignore[reportUnknownMemberType]

    return step


def _optimizer(module: ReplayModule) -> torch.optim.Optimizer:
    """Return SGD with momentum for dense gradients only, because momentum is a dense tensor."""
    sparse = module.sparse_parameters()
    sparse_ids = {id(parameter) for parameter in sparse}
    dense = [parameter for parameter in module.parameters() if id(parameter) not in sparse_ids]
    groups = [{"params": dense, "momentum": MOMENTUM}]
    if sparse:
        groups.append({"params": sparse, "momentum": 0.0})
    return torch.optim.SGD(groups, lr=LEARNING_RATE)
