"""torch.distributed.checkpoint on Slipstream's checkpoints, both ways, and PyTorch's own reader."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from torch.distributed import checkpoint as torch_checkpoint
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

from slipstream.errors import UsageError
from slipstream.train.checkpoint import Checkpointer, CheckpointError, PerRank, dcp

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def state_of(seed: int) -> dict:
    generator = torch.Generator().manual_seed(seed)
    return {
        "model": {"w": torch.randn(2000, 30, generator=generator), "b": torch.randn(7).fill_(seed)},
        "groups": [{"lr": seed / 10, "betas": [0.9, 0.99], "t": torch.full((3,), float(seed))}],
        "epoch": seed,
        "note": {"text": f"seed {seed}", "none": None},
    }


def assert_same(state: dict, other: dict) -> None:
    assert torch.equal(state["model"]["w"], other["model"]["w"])
    assert torch.equal(state["model"]["b"], other["model"]["b"])
    assert torch.equal(state["groups"][0]["t"], other["groups"][0]["t"])
    assert state["groups"][0]["lr"] == other["groups"][0]["lr"]
    assert state["groups"][0]["betas"] == other["groups"][0]["betas"]
    assert (state["epoch"], state["note"]) == (other["epoch"], other["note"])


def save_on(together, folder: Path, num_ranks: int) -> str:
    """Save by Checkpointer; return the path of the checkpoint."""

    def save(ranks) -> None:
        checkpointer = Checkpointer(folder, group=ranks)
        checkpointer.save(3, state_of(1))
        checkpointer.wait()

    together(num_ranks, save)
    return f"{folder}/step-00000003"


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_load_reads_what_checkpointer_wrote(together, tmp_path, num_ranks) -> None:
    path = save_on(together, tmp_path, num_ranks)
    state = state_of(2)
    torch_checkpoint.load(state, storage_reader=dcp.SlipstreamReader(path))
    assert_same(state, state_of(1))


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_pytorchs_reader_of_safetensors_reads_the_tensors(together, tmp_path, num_ranks) -> None:
    path = save_on(together, tmp_path, num_ranks)
    state = {"model": state_of(2)["model"]}
    torch_checkpoint.load(state, storage_reader=HuggingFaceStorageReader(path))
    assert torch.equal(state["model"]["w"], state_of(1)["model"]["w"])
    assert torch.equal(state["model"]["b"], state_of(1)["model"]["b"])


def test_checkpointer_reads_what_save_wrote(tmp_path) -> None:
    path = tmp_path / "step-00000005"
    torch_checkpoint.save(state_of(1), storage_writer=dcp.SlipstreamWriter(path))
    checkpointer = Checkpointer(tmp_path)
    assert checkpointer.list(verify=True)[0].is_whole
    state = state_of(2)
    assert checkpointer.restore(state) == 5
    assert_same(state, state_of(1))


def test_load_reads_what_save_wrote(tmp_path) -> None:
    """The path may also be given to save() and load()."""
    path = f"{tmp_path}/step-00000005/"
    other = f"{tmp_path}/step-00000001"
    torch_checkpoint.save(
        state_of(1), checkpoint_id=path, storage_writer=dcp.SlipstreamWriter(other)
    )
    state = state_of(2)
    torch_checkpoint.load(state, checkpoint_id=path, storage_reader=dcp.SlipstreamReader(other))
    assert_same(state, state_of(1))


def test_names_are_kept_if_the_planner_does_not_flatten(tmp_path) -> None:
    path = tmp_path / "step-00000005"
    torch_checkpoint.save(
        {"a.w": torch.arange(5), "n": {"a": 1}},
        storage_writer=dcp.SlipstreamWriter(path),
        planner=DefaultSavePlanner(flatten_state_dict=False),
    )
    state = {"a.w": torch.zeros(5, dtype=torch.int64), "n": {}}
    assert Checkpointer(tmp_path).restore({**state, "n": None}) == 5
    assert state["a.w"].tolist() == [0, 1, 2, 3, 4]


def test_values_of_each_rank_are_read(together, tmp_path) -> None:
    checkpointer = Checkpointer(tmp_path)
    checkpointer.save(1, {"own": PerRank({"n": 7})})
    checkpointer.wait()
    state = {"own": {"n": 0}}
    torch_checkpoint.load(state, storage_reader=dcp.SlipstreamReader(tmp_path / "step-00000001"))
    assert state == {"own": {"n": 7}}


def test_damage_is_found(together, tmp_path) -> None:
    path = save_on(together, tmp_path, 1)
    (file,) = Path(path).glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    with pytest.raises(CheckpointException, match="crc32"):
        torch_checkpoint.load(state_of(2), storage_reader=dcp.SlipstreamReader(path))


def test_values_that_are_not_plain_are_refused(tmp_path) -> None:
    writer = dcp.SlipstreamWriter(tmp_path / "step-00000001")
    with pytest.raises(CheckpointException, match="'x' of the state is a object"):
        torch_checkpoint.save({"x": object()}, storage_writer=writer)
    with pytest.raises(UsageError, match="allowed: the folder of a step"):
        dcp.SlipstreamReader(tmp_path)


class Exploding:
    """An object whose unpickling is noticed."""

    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


def test_nothing_of_the_files_is_unpickled(tmp_path) -> None:
    """A pickle in the place of every file is read as damage."""
    checkpointer = Checkpointer(tmp_path)
    checkpointer.save(1, {"x": torch.ones(3)})
    checkpointer.wait()
    for file in (tmp_path / "step-00000001").iterdir():
        file.write_bytes(pickle.dumps(Exploding()))
        with pytest.raises(CheckpointError):
            checkpointer.restore({"x": torch.ones(3)}, step=1)
