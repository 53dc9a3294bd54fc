"""States with objects in lists, with empty tensors, without memory, or that cannot be read."""

from __future__ import annotations

import mmap
import time

import numpy as np
import pytest
import torch
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
