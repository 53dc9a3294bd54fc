"""DistributedOptimizer trains as one process does with all samples.

slipstream run -n 2 hvd_optimizer.py
"""

import os
import warnings
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
    """Trains with the samples of all ranks."""
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
    """Ranks that use other parts of a model: what is lacking counts as zeros."""
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
    optimizer = hvd.DistributedOptimizer(sgd(model), named)
    loss_of(model, 0, 0).backward()
    with pytest.raises(AssertionError, match=r"zero_grad\(\) was called after"):
        optimizer.zero_grad()
    with pytest.raises(AssertionError, match="more than backward_passes_per_step"):
        loss_of(model, 0, 0).backward()
    optimizer.synchronize()
    optimizer.zero_grad()


def main() -> None:
    hvd.init()
    for check in (
        check_training,
        check_groups_of_lists,
        check_clipping,
        check_what_is_lacking,
        check_sparse,
        check_adasum,
        check_wrong_calls,
    ):
        check()
    hvd.shutdown()


main()
