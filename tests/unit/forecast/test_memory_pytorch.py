"""Peaks compared with PyTorch's own trackers and with real runs."""

import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from slipstream.forecast.memory import replay
from slipstream.forecast.trace import trace
from slipstream.forecast.trace.architectures.encoders import BERT_BASE, BertPretraining
from slipstream.forecast.trace.architectures.names import find
from slipstream.forecast.trace.architectures.transformer import Decoder, TransformerSize
from slipstream.forecast.work.strategy import Optimizer, Strategy
from slipstream.forecast.work.workload import Workload

GPT = TransformerSize(
    hidden=128, layers=4, heads=4, vocabulary=512, positions=128, dropout=0.0
)  # fmt: skip
# The model has more weights than activations.
HEAVY = replace(GPT, hidden=512, heads=8)


def _tokens(batch: int) -> tuple[torch.Tensor, ...]:
    return (torch.zeros(batch, 128, dtype=torch.long),)


@cache
def _traced(size: TransformerSize, batch: int = 8) -> Workload:
    return trace(lambda: Decoder(size), lambda: _tokens(batch), name="gpt", samples=batch)


NAMED: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[torch.Tensor, ...]], int]] = {
    "resnet50": (find("resnet50").make, find("resnet50").inputs, 32),
    "vgg16": (find("vgg16").make, find("vgg16").inputs, 32),
    "mobilenet": (find("mobilenet-v2").make, find("mobilenet-v2").inputs, 32),
    # Masks of dropout have a byte per number on GPUs, and four in the tracker.
    "bert-base": (
        lambda: BertPretraining(replace(BERT_BASE, dropout=0.0)),
        find("bert-base").inputs,
        8,
    ),
    "gpt2": (partial(find("gpt2").make, dropout=0.0), find("gpt2").inputs, 4),
}


@cache
def _traced_named(name: str) -> Workload:
    make, inputs, batch = NAMED[name]
    return trace(make, lambda: inputs(batch), name=name, samples=batch)


def _optimizer(module: nn.Module, kind: Optimizer) -> torch.optim.Optimizer:
    if kind is Optimizer.ADAM:
        return torch.optim.Adam(module.parameters(), lr=1e-6, foreach=True)
    momentum = 0.9 if kind is Optimizer.MOMENTUM else 0.0
    return torch.optim.SGD(module.parameters(), lr=1e-6, momentum=momentum, foreach=True)


def _step(module: nn.Module, arguments: Any, optimizer: torch.optim.Optimizer) -> None:
    loss = module(*arguments)
    (loss if loss.dim() == 0 else loss.sum()).backward()
    del loss
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.slow("memory of a training")
@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("kind", [Optimizer.MOMENTUM, Optimizer.ADAM])
def test_peaks_are_those_of_pytorchs_tracker(name: str, kind: Optimizer):
    make, inputs, batch = NAMED[name]
    with FakeTensorMode(allow_non_fake_inputs=True):
        module, arguments = make().train(), inputs(batch)
        optimizer = _optimizer(module, kind)
        tracker = MemTracker()
        tracker.track_external(module, optimizer, *arguments)
        with tracker:
            for _ in range(2):
                tracker.reset_mod_stats()
                _step(module, arguments, optimizer)
        (told,) = tracker.get_tracker_snapshot("peak").values()
    peak = replay(_traced_named(name), Strategy(micro_batch=batch), optimizer=kind)
    assert peak.allocated == pytest.approx(told["Total"], rel=0.02)


@contextmanager
def _eight_ranks() -> Generator[dist.DeviceMesh]:
    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    try:
        yield dist.init_device_mesh("cpu", (8,))
    finally:
        dist.destroy_process_group()


def test_gathered_parameters_are_those_of_pytorchs_tracker_of_fsdp():
    with _eight_ranks() as mesh, FakeTensorMode(allow_non_fake_inputs=True):
        module = Decoder(HEAVY).train()
        for each in (*module.blocks, module):
            fully_shard(each, mesh=mesh)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        tracker = FSDPMemTracker(module, optimizer)
        with tracker:
            for _ in range(2):
                tracker.reset_mod_stats()
                _step(module, _tokens(1), optimizer)
        (told,) = tracker.get_tracker_snapshot("peak").values()
    peak = replay(_traced(HEAVY, 1), Strategy(data=8, zero=3), optimizer=Optimizer.SGD)
    assert peak.allocated == pytest.approx(told["Total"], rel=0.05)


class _Live(TorchDispatchMode):
    """A mode that counts the bytes of live storages."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.see(*(x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)))
        return result

    def see(self, *tensors: torch.Tensor) -> None:
        for storage in (tensor.untyped_storage() for tensor in tensors):
            if storage not in self._known:
                self._known.add(storage)
                weakref.finalize(storage, self._gone, storage.nbytes())
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)

    def _gone(self, num_bytes: int) -> None:
        self.now -= num_bytes


class _Checkpointed(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)


def _model(again: bool) -> nn.Module:
    module = Decoder(GPT).train()
    if again:
        for index, block in enumerate(module.blocks):
            module.blocks[index] = _Checkpointed(block)
    return module


@pytest.mark.slow("memory of a training")
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("kind", [Optimizer.MOMENTUM, Optimizer.ADAM])
def test_peaks_are_those_of_real_runs(again: bool, kind: Optimizer):
    module, arguments = _model(again), _tokens(8)
    with _Live() as live:
        live.see(*module.parameters(), *arguments)
        optimizer = _optimizer(module, kind)
        for _ in range(2):
            _step(module, arguments, optimizer)
    gpt = _traced(GPT)
    peak = replay(gpt, Strategy(micro_batch=8, checkpoint=again), optimizer=kind)
    assert peak.allocated == pytest.approx(live.peak, rel=0.05)
