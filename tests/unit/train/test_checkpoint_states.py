"""States with objects in lists, with empty tensors, without memory, or that cannot be read."""

from __future__ import annotations

import mmap
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed import checkpoint as torch_checkpoint

from slipstream.errors import MismatchError
from slipstream.train.checkpoint import Checkpointer, CheckpointError, PerRank, dcp


def optimizer_with(seed: int) -> torch.optim.Adam:
    torch.manual_seed(seed)
    parameter = torch.nn.Parameter(torch.randn(3))
    optimizer = torch.optim.Adam([parameter], lr=seed / 100)
    (parameter.sum() * seed).backward()
    optimizer.step()
    return optimizer


def moments(optimizer: torch.optim.Optimizer) -> list[float]:
    (state,) = (optimizer.state[each] for each in optimizer.param_groups[0]["params"])
    return state["exp_avg"].tolist()


def saved(folder, state: dict) -> Checkpointer:
    checkpointer = Checkpointer(folder)
    checkpointer.save(1, state)
    checkpointer.wait()
    return checkpointer


def test_objects_in_lists_are_restored(tmp_path) -> None:
    """They were once replaced by their states, and kept what they had."""
    saved(tmp_path, {"optimizers": [optimizer_with(3), (optimizer_with(5), PerRank(7), {"n": 1})]})
    generator, critic, own = optimizer_with(1), optimizer_with(2), PerRank(0)
    state = {"optimizers": [generator, (critic, own, {"n": 0})]}
    assert Checkpointer(tmp_path).restore(state) == 1
    assert state["optimizers"] == [generator, (critic, own, {"n": 1})]
    assert moments(generator) == moments(optimizer_with(3))
    assert moments(critic) == moments(optimizer_with(5))
    assert own.value == 7
    with pytest.raises(MismatchError, match="'optimizers' has 1 items in the state"):
        Checkpointer(tmp_path).restore({"optimizers": [generator]})


def test_tensors_in_lists_are_filled_in_place_if_they_are_alike(tmp_path) -> None:
    saved(tmp_path, {"ema": [torch.ones(3), torch.ones(2)], "history": [1, 2]})
    first = torch.zeros(3)
    state = {"ema": [first], "history": []}
    assert Checkpointer(tmp_path).restore(state) == 1
    assert first.tolist() == [1, 1, 1]
    assert [each.tolist() for each in state["ema"]] == [[1, 1, 1], [1, 1]]
    assert state["history"] == [1, 2]


def test_a_model_without_memory_is_refused(tmp_path) -> None:
    """Its weights once stayed as they were, without an error."""
    saved(tmp_path, {"model": torch.nn.Linear(3, 2), "x": torch.ones(3)})
    with torch.device("meta"):
        model = torch.nn.Linear(3, 2)
    with pytest.raises(MismatchError, match=r"no memory \(device meta\); call to_empty"):
        Checkpointer(tmp_path).restore({"model": model})


def test_the_default_device_of_pytorch_makes_no_difference(tmp_path) -> None:
    saved(tmp_path, {"x": torch.ones(3, 4), "optimizer": optimizer_with(3)})
    strided, optimizer = torch.zeros(4, 3).t(), optimizer_with(1)
    optimizer.state.clear()
    with torch.device("meta"):  # such as "cuda", on a machine that has none
        Checkpointer(tmp_path).restore({"x": strided, "optimizer": optimizer})
    assert strided.sum() == 12
    assert moments(optimizer) == moments(optimizer_with(3))


def test_empty_arrays_are_restored(tmp_path) -> None:
    saved(tmp_path, {"x": np.zeros((0, 3))})
    assert Checkpointer(tmp_path).restore({"x": np.zeros((0, 3))}) == 1


class Named(torch.nn.Module):
    """A module whose names of parameters have the sign of values of one rank."""

    def __init__(self, first: float, second: float) -> None:
        super().__init__()
        self.register_parameter("w", torch.nn.Parameter(torch.full((2,), first)))
        self.register_parameter("w@x", torch.nn.Parameter(torch.full((2,), second)))


def test_names_with_the_sign_of_ranks_are_kept_apart(tmp_path) -> None:
    saved(tmp_path, {"model": Named(1.0, 2.0)})
    model = Named(0.0, 0.0)
    Checkpointer(tmp_path).restore({"model": model})
    assert [each.tolist() for each in model.parameters()] == [[1, 1], [2, 2]]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_an_optimizer_that_pytorchs_save_wrote_gets_its_moments(tmp_path) -> None:
    """PyTorch turns the numbers of parameters into texts, and the moments were once lost."""
    torch_checkpoint.save(
        {"optimizer": optimizer_with(3).state_dict()},
        storage_writer=dcp.SlipstreamWriter(tmp_path / "step-00000001"),
    )
    optimizer = optimizer_with(1)
    assert Checkpointer(tmp_path).restore({"optimizer": optimizer}) == 1
    assert moments(optimizer) == moments(optimizer_with(3))
    optimizer.step()


class Broken:
    """An object whose state cannot be read."""

    def state_dict(self) -> dict:
        raise ValueError("no state now")

    def load_state_dict(self, state: dict) -> None:
        pass


@pytest.mark.parametrize("broken", [0, 1])
def test_ranks_do_not_wait_for_one_whose_state_cannot_be_read(together, tmp_path, broken) -> None:
    def save(ranks) -> None:
        checkpointer = Checkpointer(tmp_path, group=ranks, timeout_seconds=20)
        state = {"x": Broken() if ranks.rank == broken else torch.nn.Linear(2, 1)}
        if ranks.rank == broken:
            with pytest.raises(ValueError, match="no state now"):
                checkpointer.save(1, state)
        else:
            start = time.monotonic()
            checkpointer.save(1, state)
            with pytest.raises(CheckpointError, match=f"rank {broken} cannot save its state: Val"):
                checkpointer.wait()
            assert time.monotonic() - start < 10
        ranks.gather("")
        checkpointer.save(2, {"x": 1})
        checkpointer.wait()
        assert checkpointer.newest() == 2

    together(3, save)


def test_kernels_without_huge_pages_are_enough(tmp_path, monkeypatch) -> None:
    """madvise() of Linux fails if the kernel was built without them."""

    class Memory(mmap.mmap):
        def madvise(self, *arguments) -> None:
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", Memory)
    saved(tmp_path, {"x": torch.ones(3)})
    assert Checkpointer(tmp_path).newest() == 1


def test_lazy_conjugates_and_negatives_are_saved_and_restored(tmp_path) -> None:
    """Their memory has other values than they; reading into it once was an error of PyTorch."""
    base = torch.tensor([1 + 2j, 3 - 4j] * 5000, dtype=torch.complex64)
    saved(tmp_path, {"conjugate": base.conj(), "negative": base.conj().imag, "plain": base})
    numbers = torch.zeros(10_000, dtype=torch.complex64)
    state = {
        "conjugate": numbers.conj(),
        "negative": torch._neg_view(torch.zeros(10_000)),
        "plain": torch.zeros_like(base),
    }
    Checkpointer(tmp_path).restore(state)
    assert torch.equal(state["conjugate"], base.conj())
    assert torch.equal(numbers, base)
    assert torch.equal(state["negative"], -base.imag)
    assert torch.equal(state["plain"], base)


def test_ranks_do_not_wait_for_one_that_cannot_fill_its_tensors(together, tmp_path) -> None:
    """A tensor whose elements share memory cannot be filled, which PyTorch says."""
    saved(tmp_path, {"x": torch.arange(3.0)})

    def restore(ranks) -> None:
        tensor = torch.zeros(1).expand(3) if ranks.rank == 1 else torch.zeros(3)
        checkpointer = Checkpointer(tmp_path, group=ranks)
        kind = RuntimeError if ranks.rank == 1 else MismatchError
        with pytest.raises(kind, match="single memory location"):
            checkpointer.restore({"x": tensor})

    together(2, restore)


def parameters_of(seed: int) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(n, generator=generator)) for n in (3, 5, 2)]


def stepped(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = parameter.detach() * 2
    optimizer.step()
    return optimizer


def groups_of(parameters: list[torch.nn.Parameter]) -> list[dict]:
    return [{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.125}]


@pytest.fixture
def divided() -> Iterator[Callable[..., Any]]:
    """Return a function that makes a ZeroRedundancyOptimizer, in a group of one rank."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch uses what it deprecates
        from torch.distributed.optim import ZeroRedundancyOptimizer
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield lambda groups, lr=0.1: ZeroRedundancyOptimizer(groups, torch.optim.Adam, lr=lr)
    dist.destroy_process_group()


def assert_moments(optimizer: torch.optim.Optimizer, expected: torch.optim.Optimizer) -> None:
    state, other = optimizer.state_dict(), expected.state_dict()
    assert state["param_groups"] == other["param_groups"]
    assert state["state"].keys() == other["state"].keys()
    for number, moments_of in other["state"].items():
        for name, value in moments_of.items():
            assert torch.equal(state["state"][number][name], value)


@pytest.mark.parametrize("has_stepped", [False, True])
def test_the_state_of_a_zero_optimizer_restores_a_plain_one(divided, tmp_path, has_stepped) -> None:
    """It was once a KeyError."""
    saved(tmp_path, {"optimizer": stepped(divided(groups_of(parameters_of(1)), lr=0.5))})
    optimizer = torch.optim.Adam(groups_of(parameters_of(2)), lr=0.1)
    if has_stepped:
        stepped(optimizer)
    Checkpointer(tmp_path).restore({"optimizer": optimizer})
    assert_moments(optimizer, stepped(torch.optim.Adam(groups_of(parameters_of(1)), lr=0.5)))
    stepped(optimizer)


def test_the_state_of_a_plain_optimizer_restores_a_zero_one(divided, tmp_path) -> None:
    plain = stepped(torch.optim.Adam(groups_of(parameters_of(1)), lr=0.5))
    saved(tmp_path, {"optimizer": plain})
    parameters = parameters_of(2)
    optimizer = divided(groups_of(parameters))
    Checkpointer(tmp_path).restore({"optimizer": optimizer})
    for number, moments_of in plain.state_dict()["state"].items():
        for name, value in moments_of.items():
            assert torch.equal(optimizer.optim.state[parameters[number]][name], value)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.125]
    stepped(optimizer)


def test_an_optimizer_of_other_parameters_is_refused(divided, tmp_path) -> None:
    of_three = divided(groups_of(parameters_of(1)))
    saved(tmp_path, {"optimizer": stepped(of_three), "n": {"state": 1}})
    for optimizer in (
        torch.optim.Adam(parameters_of(1)),
        torch.optim.Adam(groups_of(parameters_of(1)[:2])),
        divided(parameters_of(1)),
    ):
        with pytest.raises(MismatchError, match="pass an optimizer of the same parameters"):
            Checkpointer(tmp_path).restore({"optimizer": optimizer})
    with pytest.raises(MismatchError, match="'n' is no optimizer"):
        Checkpointer(tmp_path).restore({"n": of_three})
