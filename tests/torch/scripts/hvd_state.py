"""The same weights, optimizer states and objects on all ranks; batch normalisation over all.

slipstream run -n 2 hvd_state.py
"""

import itertools
import os
import threading

os.environ.setdefault("SLIPSTREAM_JOB_KEY", "a key for these tests")

import pytest
import torch
from torch import nn

import slipstream.horovod.torch as hvd

OPTIMIZERS = {
    "SGD": {"momentum": 0.9},
    "Adam": {"betas": (0.8, 0.99)},
    "RMSprop": {"centered": True},
    "Adagrad": {},
    "Rprop": {},
    "ASGD": {},
}


def net(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def check_parameters() -> None:
    for form in (dict, list):
        model, expected = net(hvd.rank()), net(1)
        params = model.state_dict() if form is dict else list(model.named_parameters())
        hvd.broadcast_parameters(params, root_rank=1)
        for own, wanted in zip(model.parameters(), expected.parameters(), strict=True):
            assert torch.equal(own, wanted)


def check_optimizer_state(name: str, root: int) -> None:
    """Only the root has a state and the right options."""
    model = net(0)
    kind = getattr(torch.optim, name)
    options = OPTIMIZERS[name] if hvd.rank() == root else {}
    plain = kind(model.parameters(), lr=0.1 + hvd.rank(), **options)
    if hvd.rank() == root:
        model(torch.randn(6, 5)).square().sum().backward()
        plain.step()
    plain.zero_grad()
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root)
    hvd.broadcast_optimizer_state(optimizer, root)
    states = hvd.allgather_object(optimizer.state_dict())
    for each in states:
        torch.testing.assert_close(each, states[0], rtol=0, atol=0)
        assert each["param_groups"][0]["lr"] == 0.1 + root
    optimizer.zero_grad()
    model(torch.randn(6, 5)).square().sum().backward()
    optimizer.step()


def check_scheduler() -> None:
    """Check that a scheduler of the original optimizer still changes the rate on all ranks."""
    model = net(0)
    plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(plain, step_size=1, gamma=0.5)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    hvd.broadcast_optimizer_state(optimizer, 0)
    optimizer.zero_grad()
    model(torch.randn(6, 5)).sum().backward()
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.05


def check_no_state_yet() -> None:
    frozen, trained = nn.Parameter(torch.ones(2), requires_grad=False), nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([frozen, trained], lr=0.1, momentum=0.9)
    hvd.broadcast_optimizer_state(optimizer, 0)
    assert frozen.grad is None
    assert torch.equal(trained.grad, torch.zeros(2))
    with pytest.raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS([trained]), 0)


def check_objects() -> None:
    obj = {"answer": 42, 0: [1, 2]}
    for root in range(hvd.size()):
        assert hvd.broadcast_object(obj if hvd.rank() == root else None, root) == obj
    for call in (
        lambda: hvd.broadcast_object(threading.Lock(), 0),
        lambda: hvd.allgather_object(threading.Lock() if hvd.rank() else 0),
    ):
        with pytest.raises(hvd.HorovodInternalError, match="cannot pickle"):
            call()
    doubled = hvd.broadcast_object((lambda: hvd.rank() * 2) if hvd.rank() == 0 else None)
    assert doubled() == 2 * hvd.rank()
    gathered = hvd.allgather_object({"rank": hvd.rank(), "text": "x" * hvd.rank()})
    assert gathered == [{"rank": r, "text": "x" * r} for r in range(hvd.size())]


def check_batch_norm() -> None:
    """Check that batch norm acts as if one process had all batches, which differ in size."""
    for shape, affine in itertools.product([(3,), (3, 4, 5)], [True, False]):
        batches = [torch.randn(2 + rank, *shape) for rank in range(hvd.size())]
        batches = hvd.broadcast_object(batches)
        own = batches[hvd.rank()].requires_grad_()
        whole = torch.cat([each.detach() for each in batches]).requires_grad_()
        ours = hvd.SyncBatchNorm(3, affine=affine)
        plain = (nn.BatchNorm1d if len(shape) == 1 else nn.BatchNorm2d)(3, affine=affine)
        result, expected = ours(own), plain(whole)
        begin = sum(len(each) for each in batches[: hvd.rank()])
        end = begin + len(own)
        torch.testing.assert_close(result, expected[begin:end])
        torch.testing.assert_close(ours.running_mean, plain.running_mean)
        torch.testing.assert_close(ours.running_var, plain.running_var)
        weights = torch.arange(float(whole.numel())).view_as(whole)
        (result * weights[begin:end]).sum().backward()
        (expected * weights).sum().backward()
        torch.testing.assert_close(own.grad, whole.grad[begin:end], rtol=1e-4, atol=1e-2)
        if affine:
            summed = hvd.allreduce(ours.weight.grad, op=hvd.Sum)
            torch.testing.assert_close(summed, plain.weight.grad, rtol=1e-4, atol=1e-2)
        ours.eval()
        plain.eval()
        torch.testing.assert_close(ours(own), plain(own))
    untracked = hvd.SyncBatchNorm(3, track_running_stats=False).eval()
    result = untracked(torch.full((2, 3), float(hvd.rank())))
    assert (result.sign() == (1 if 2 * hvd.rank() > hvd.size() - 1 else -1)).all()
    half = hvd.SyncBatchNorm(3)(torch.full((40, 3), 300.0, dtype=torch.float16))
    assert half.dtype == torch.float16
    assert half.isfinite().all()
    with pytest.raises(ValueError, match="at least 2D"):
        hvd.SyncBatchNorm(3)(torch.ones(3))


def main() -> None:
    hvd.init()
    check_parameters()
    for root, name in enumerate(OPTIMIZERS):
        check_optimizer_state(name, root % hvd.size())
    check_scheduler()
    check_no_state_yet()
    check_objects()
    check_batch_norm()
    hvd.shutdown()


main()
