"""DistributedOptimizer trains as one process does with all samples.

slipstream run -n 2 hvd_optimizer.py
"""

import gc
import os
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any

os.environ.setdefault("SLIPSTREAM_JOB_KEY", "a key for these tests")
os.environ["SLIPSTREAM_HOST_ID"] = f"host {os.environ['RANK']}"  # codecs are between hosts only

import pytest
import torch
from torch import nn

import slipstream.horovod.torch as hvd

STEPS, ROWS = 6, 4


def net() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Linear(32, 2))


def rows_of(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1000 * step + rank)
    rows = torch.randn(ROWS, 8)
    return rows, rows[:, :2] * 2


def loss_of(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    rows, targets = rows_of(step, rank)
    return (model(rows) - targets).square().mean()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def alone(make: Callable[[nn.Module], torch.optim.Optimizer], passes: int = 1) -> nn.Module:
    """Train with the samples of all ranks in one process."""
    model = net()
    optimizer = make(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        for one in range(passes):
            for rank in range(hvd.size()):
                (loss_of(model, step * passes + one, rank) / hvd.size()).backward()
        optimizer.step()
    return model


def together(
    make: Callable[[nn.Module], torch.optim.Optimizer], passes: int = 1, **options: Any
) -> nn.Module:
    model = net()
    optimizer = hvd.DistributedOptimizer(
        make(model), model.named_parameters(), backward_passes_per_step=passes, **options
    )
    assert isinstance(optimizer, type(make(model)))
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    for step in range(STEPS):
        optimizer.zero_grad()
        for one in range(passes):
            loss_of(model, step * passes + one, hvd.rank()).backward()
        optimizer.step()
        scheduler.step()
    return model


def check_same(model: nn.Module, expected: nn.Module, tolerance: float = 1e-5) -> None:
    for own, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(own, wanted, rtol=tolerance, atol=tolerance)
        of_all = hvd.allgather(own.detach()[None])
        assert all(torch.equal(each, of_all[0]) for each in of_all), "ranks differ"


def check_training() -> None:
    expected = alone(sgd)
    for options in (
        {},
        {"groups": 2},
        {"groups": [list(net().parameters())[:0]]},
        {"gradient_predivide_factor": 2.0},
    ):
        check_same(together(sgd, **options), expected)
    with pytest.warns(DeprecationWarning, match="num_groups"):
        check_same(together(sgd, num_groups=3), expected)
    check_same(together(sgd, passes=3), alone(sgd, passes=3))
    adam = lambda model: torch.optim.Adam(model.parameters(), lr=0.01)  # noqa: E731
    check_same(together(adam), alone(adam))
    summed = lambda model: torch.optim.SGD(model.parameters(), lr=0.05 / hvd.size())  # noqa: E731
    check_same(
        together(summed, op=hvd.Sum), alone(lambda m: torch.optim.SGD(m.parameters(), lr=0.05))
    )
    for compression, tolerance in (("fp16", 2e-3), ("bf16", 2e-2), ("int8", 5e-2)):
        check_same(
            together(sgd, compression=getattr(hvd.Compression, compression)), expected, tolerance
        )


def check_only_bytes_keep_what_they_lose() -> None:
    """Error feedback takes the memory of the gradients once more; with 16 bits there is none."""
    for number, (name, more) in enumerate({"none": 0, "fp16": 0, "bf16": 0, "int8": 1}.items()):
        parameter = nn.Parameter(torch.zeros(7, 1237 + number))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([parameter], lr=1.0),
            [("parameter", parameter)],
            compression=getattr(hvd.Compression, name),
        )
        parameter.sum().backward()
        optimizer.step()
        tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
        # The parameter and its gradient.
        assert sum(each.shape == parameter.shape for each in tensors) == 2 + more, name


def check_groups_of_lists() -> None:
    model, expected = net(), alone(sgd)
    parameters = list(model.parameters())
    optimizer = hvd.DistributedOptimizer(
        sgd(model), model.named_parameters(), groups=[parameters[:3], parameters[3:5]]
    )
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step, hvd.rank()).backward()
        optimizer.step()
    check_same(model, expected)


def check_clipping() -> None:
    model = net()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    loss_of(model, 0, hvd.rank()).backward()
    optimizer.synchronize()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    assert (hvd.allgather(norm[None]) == norm).all()
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.zero_grad()
    loss_of(model, 1, hvd.rank()).backward()
    optimizer.synchronize()
    with pytest.warns(UserWarning, match="without optimizer.skip_synchronize"):
        optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.zero_grad()
        loss_of(model, 2, hvd.rank()).backward()
        optimizer.step()


def check_what_is_lacking() -> None:
    """Check that missing gradients count as zeros if ranks use other parts of a model."""
    model = nn.ModuleList([nn.Linear(2, 2, bias=False) for _ in range(2)])
    for each in model:
        nn.init.ones_(each.weight)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters()
    )
    model[hvd.rank() % 2](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    share = {0: (hvd.size() + 1) // 2, 1: hvd.size() // 2}
    for place, each in enumerate(model):
        assert torch.allclose(each.weight, torch.tensor(1 - share[place] / hvd.size()))


def check_sparse() -> None:
    for as_dense in (False, True):
        embedding = nn.Embedding(6, 2, sparse=True)
        nn.init.zeros_(embedding.weight)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(embedding.parameters(), lr=1.0),
            embedding.named_parameters(),
            op=hvd.Sum,
            sparse_as_dense=as_dense,
        )
        embedding(torch.tensor([hvd.rank(), 5])).sum().backward()
        optimizer.step()
        expected = torch.zeros(6, 2)
        expected[: hvd.size()] -= 1
        expected[5] -= hvd.size()
        assert torch.equal(embedding.weight.detach(), expected), as_dense


def check_adasum() -> None:
    """Equal changes are averaged: every rank has the same samples."""
    model, expected = net(), net()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), op=hvd.Adasum)
    plain = sgd(expected)
    for step in range(STEPS):
        for each, by in ((model, optimizer), (expected, plain)):
            by.zero_grad()
            loss_of(each, step, 0).backward()
            by.step()
    check_same(model, expected)
    with pytest.raises(AssertionError, match="not supported when using Adasum"):
        optimizer.skip_synchronize().__enter__()


def check_only_its_own_parameters() -> None:
    """Check two optimizers that get all names and share a backward pass."""
    model, expected = net(), alone(sgd)
    parameters = list(model.parameters())
    optimizers = [
        hvd.DistributedOptimizer(
            torch.optim.SGD(part, lr=0.05, momentum=0.9), model.named_parameters()
        )
        for part in (parameters[:2], parameters[2:])
    ]
    for step in range(STEPS):
        for each in optimizers:
            each.zero_grad()
        loss_of(model, step, hvd.rank()).backward()
        for each in optimizers:
            each.step()
    check_same(model, expected)


def check_closure() -> None:
    """Check that the closure's gradients are those of all ranks when the step uses them."""
    model, expected = net(), alone(sgd)
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    for step in range(STEPS):

        def closure(step: int = step) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, step, hvd.rank())
            loss.backward()
            return loss

        assert optimizer.step(closure) is not None
    check_same(model, expected)


class Tenth(hvd.Compression.fp16):
    """A user's: what decompress() needs is nothing."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, None]:
        return tensor / 10, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: None) -> torch.Tensor:
        return tensor * 10


def check_own_compression() -> None:
    check_same(together(sgd, compression=Tenth), alone(sgd))


def check_nothing_is_left() -> None:
    """Check that dropped objects are freed, and that a dropped optimizer gets no gradient."""
    outputs = [weakref.ref(hvd.allreduce(torch.ones(10))) for _ in range(5)]
    gc.collect()
    assert not any(each() is not None for each in outputs)
    model = net()
    dropped = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    loss_of(model, 0, hvd.rank()).backward()
    dropped.step()
    del dropped
    gc.collect()
    for _ in range(2):
        loss_of(model, 0, hvd.rank()).backward()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    optimizer.zero_grad()
    loss_of(model, 0, hvd.rank()).backward()
    optimizer.step()


def check_poll() -> None:
    """Check that an output in place is complete once poll() says so."""
    tensors = [torch.full((3,), 2) for _ in range(4)]
    handles = [hvd.allreduce_async_(each, name=f"polled {i}") for i, each in enumerate(tensors)]
    while not all(hvd.poll(each) for each in handles):
        time.sleep(0.001)
    assert all((each == 2).all() for each in tensors)
    assert all((hvd.synchronize(each) == 2).all() for each in handles)


def check_dropped_handles() -> None:
    """Check that an in-place tensor has its result after the next collective, as in Horovod."""
    names = [f"dropped {i}" for i in range(3)]
    tensors = [torch.full((5,), hvd.rank()) for _ in names]  # fused, and divided
    for each, name in zip(tensors, names, strict=True):
        hvd.allreduce_async_(each, name=name)
    hvd.barrier()
    average = (hvd.size() - 1) // 2
    assert all((each == average).all() for each in tensors), tensors


def check_forgotten_gradients() -> None:
    """Who loads a state after backward may go on."""
    model = net()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    for _ in range(3):
        loss_of(model, 0, hvd.rank()).backward()
        hvd.barrier()
        optimizer.load_state_dict(optimizer.state_dict())
    loss_of(model, 0, hvd.rank()).backward()
    optimizer.step()


def check_channels_last() -> None:
    model = nn.Conv2d(256, 128, 3).to(memory_format=torch.channels_last)
    optimizer = hvd.DistributedOptimizer(
        sgd(model), model.named_parameters(), compression=hvd.Compression.int8
    )
    model(torch.randn(1, 256, 4, 4)).sum().backward()
    optimizer.step()


def check_wrong_calls() -> None:
    model = net()
    named = list(model.named_parameters())
    for options, text in (
        ({"named_parameters": named[:1]}, "were not named"),
        ({"named_parameters": [*named, ("0.weight", named[1][1])]}, "Found duplicates: 0.weight"),
        ({"named_parameters": list(model.parameters())}, "sequence of tuples"),
        ({"groups": 0}, "non-negative integer"),
        ({"groups": [[1]]}, "must consist of torch.Tensor"),
        ({"groups": [[named[0][1]], [named[0][1]]]}, "only appear once"),
        ({"backward_passes_per_step": 0}, "must be > 0"),
        ({"op": hvd.Sum, "gradient_predivide_factor": 2.0}, "op != Average"),
    ):
        with pytest.raises(ValueError, match=text):
            hvd.DistributedOptimizer(sgd(model), **options)
    counted = hvd.DistributedOptimizer(sgd(model))._parameter_names
    assert len(set(counted.values())) == len(named)
    assert hvd.allgather_object(sorted(counted.values())) == [sorted(counted.values())] * hvd.size()
    optimizer = hvd.DistributedOptimizer(sgd(model), named)
    assert optimizer._parameter_names[named[0][1]] == named[0][0]
    assert (optimizer.op, optimizer.process_set) == (hvd.Average, hvd.global_process_set)
    assert (optimizer.backward_passes_per_step, optimizer.sparse_as_dense) == (1, False)
    optimizer.backward_passes_per_step = 1
    loss_of(model, 0, 0).backward()
    with pytest.raises(AssertionError, match=r"zero_grad\(\) was called after"):
        optimizer.zero_grad()
    with pytest.raises(AssertionError, match="more than backward_passes_per_step"):
        loss_of(model, 0, 0).backward()
    optimizer.synchronize()
    optimizer.zero_grad()
    strange = hvd.ProcessSet([0])
    with pytest.raises(ValueError, match="has not been registered"):
        hvd.DistributedOptimizer(sgd(model), named, process_set=strange)


def main() -> None:
    with pytest.raises(ValueError, match=r"use hvd\.init"):
        hvd.DistributedOptimizer(sgd(net()))
    hvd.init()
    for check in (
        check_training,
        check_only_bytes_keep_what_they_lose,
        check_groups_of_lists,
        check_clipping,
        check_what_is_lacking,
        check_sparse,
        check_adasum,
        check_only_its_own_parameters,
        check_closure,
        check_own_compression,
        check_nothing_is_left,
        check_poll,
        check_dropped_handles,
        check_forgotten_gradients,
        check_channels_last,
        check_wrong_calls,
    ):
        check()
    hvd.shutdown()


main()
