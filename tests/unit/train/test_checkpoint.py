"""Checkpoints of one process and of ranks that are threads."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import uuid
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from slipstream.errors import MismatchError, UsageError
from slipstream.train.checkpoint import Checkpointer, CheckpointError, PerRank


def grow_old(folder: Path) -> None:
    """Make all that is in a folder older than any save may take."""
    for path in folder.rglob("*"):
        os.utime(path, (1e9, 1e9))


def model() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.BatchNorm1d(200))


def trained(seed: int) -> dict:
    """Return the state of a training that has made a step."""
    torch.manual_seed(seed)
    module = model()
    optimizer = torch.optim.AdamW(module.parameters(), lr=seed / 10)
    module(torch.randn(4, 300)).sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    return {"model": module, "optimizer": optimizer, "scheduler": scheduler, "epoch": seed}


def assert_equal(one, other) -> None:
    """Compare two states, their tensors bit by bit."""
    if hasattr(one, "state_dict"):
        one, other = one.state_dict(), other.state_dict()
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_equal(one[key], other[key])
    else:
        assert one == other


@pytest.fixture(params=["path", "file://", "memory://", "local://"])
def folder(request, tmp_path: Path) -> str:
    if request.param == "memory://":
        return f"memory://{uuid.uuid4().hex}"
    return f"{request.param.removeprefix('path')}{tmp_path / 'runs'}"


def test_a_training_continues_from_the_newest_checkpoint(folder) -> None:
    checkpointer = Checkpointer(folder, keep=2)
    assert checkpointer.newest() is None
    assert checkpointer.restore(trained(9)) is None
    for step in (1, 2, 3):
        checkpointer.save(step, trained(step))
    checkpointer.wait()
    assert [entry.step for entry in checkpointer.list(verify=True)] == [3, 2]
    assert all(entry.is_whole for entry in checkpointer.list(verify=True))
    fresh = model()
    state = {"model": fresh, "optimizer": torch.optim.AdamW(fresh.parameters()), "epoch": 0}
    assert Checkpointer(folder).restore(state) == 3
    expected = trained(3)
    assert_equal(state, {key: expected[key] for key in state})


def test_a_state_may_change_while_it_is_written(tmp_path) -> None:
    checkpointer = Checkpointer(tmp_path)
    tensor = torch.ones(1000, 1000)
    checkpointer.save(1, {"x": tensor})
    tensor.zero_()
    checkpointer.wait()
    assert checkpointer.restore({"x": tensor}) == 1
    assert tensor.min() == 1


VALUES = {
    "plain": [1, 2.5, None, True, "text", b"\x00\xff", float("-inf"), (1, ("a",)), {}],
    "keys": {0: "zero", None: 1, "$x": {"y": []}},
    "numbers": np.float32(0.5),
}


def test_plain_values_keep_their_types(tmp_path) -> None:
    checkpointer = Checkpointer(tmp_path)
    checkpointer.save(1, VALUES)
    state = {"plain": None, "keys": {0: 0, None: 0, "$x": 0}, "numbers": 0}
    assert checkpointer.restore(state) == 1
    assert state == VALUES
    assert type(state["plain"][7]) is tuple


DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64,
    torch.uint32, torch.uint16, torch.uint8, torch.bool, torch.complex64,
]  # fmt: skip


def test_tensors_of_all_dtypes_and_shapes_are_read_by_safetensors(tmp_path) -> None:
    shapes = [(), (0,), (1,), (7,), (1, 3), (2, 0, 3), (3, 1, 5)]
    state = {
        f"{dtype}{shape}": torch.randint(0, 2, shape).to(dtype)
        for dtype in DTYPES
        for shape in shapes
    }
    state["strided"] = torch.arange(12.0).view(3, 4).t()
    state["channels"] = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    checkpointer = Checkpointer(tmp_path)
    checkpointer.save(1, state)
    checkpointer.wait()
    (file,) = (tmp_path / "step-00000001").glob("*.safetensors")
    read = load_file(file)
    assert read.keys() == state.keys()
    restored = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    assert checkpointer.restore(restored) == 1
    for name, tensor in state.items():
        flat = tensor.contiguous().reshape(-1).view(torch.uint8)
        assert torch.equal(read[name].reshape(-1).view(torch.uint8), flat)
        assert read[name].shape == tensor.shape
        assert restored[name].tolist() == tensor.tolist()


def test_arrays_are_filled_in_place(tmp_path) -> None:
    checkpointer = Checkpointer(tmp_path)
    checkpointer.save(1, {"x": np.arange(6).reshape(2, 3)})
    array = np.zeros((2, 3), dtype=np.int64)
    assert checkpointer.restore({"x": array}) == 1
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(UsageError, match="'x' cannot be filled in place"):
        checkpointer.restore({"x": array[::-1]})


def big_state(num: float) -> dict:
    """Return tensors of which some are divided among ranks and some are not."""
    generator = torch.Generator().manual_seed(int(num))
    shapes = [(1000, 100), (1, 50_000), (3, 70_000), (7,), (40_001,), ()]
    return {str(shape): torch.randn(shape, generator=generator) for shape in shapes} | {"n": num}


@pytest.mark.parametrize("readers", [1, 2, 3, 5])
@pytest.mark.parametrize("writers", [1, 2, 4])
def test_another_number_of_ranks_restores(together, tmp_path, writers, readers) -> None:
    def save(ranks) -> None:
        checkpointer = Checkpointer(tmp_path, group=ranks)
        checkpointer.save(
            1,
            {**big_state(1), "own": PerRank({"n": ranks.rank, "t": torch.full((2,), ranks.rank)})},
        )
        checkpointer.wait()

    def restore(ranks) -> PerRank:
        state = {**big_state(2), "own": PerRank({"n": -1, "t": torch.full((2,), -1)})}
        assert Checkpointer(tmp_path, group=ranks).restore(state) == 1
        own = state.pop("own")
        assert_equal(state, big_state(1))
        return own.value

    together(writers, save)
    sizes = [file.stat().st_size for file in tmp_path.glob("*/*.safetensors")]
    assert len(sizes) == writers
    assert max(sizes) - min(sizes) < 300_000  # one row of the tensor with three rows
    for rank, own in enumerate(together(readers, restore)):
        number = rank if rank < writers else -1
        assert own["n"] == number
        assert own["t"].tolist() == [number] * 2


def test_small_tensors_are_those_of_rank_0(together, tmp_path) -> None:
    def save_and_restore(ranks) -> float:
        checkpointer = Checkpointer(tmp_path, group=ranks)
        statistics = torch.full((100,), float(ranks.rank))
        checkpointer.save(1, {"running_mean": statistics})
        checkpointer.restore({"running_mean": statistics})
        return statistics.sum().item()

    assert together(3, save_and_restore) == [0, 0, 0]


@pytest.mark.parametrize(
    ("state_of", "message"),
    [
        (lambda rank: {"a": {"lr": 0.1 + rank}}, r"'a\.lr' of the state is 0.1 on rank 0 and 1.1"),
        (lambda rank: {"a": torch.zeros(3 + rank, 10_000)}, r"'a'.* is F32 \[4, 10000\] on rank 1"),
        (lambda rank: {"ab"[rank]: 1}, r"a dict with \['a'\] on rank 0 and a dict with \['b'\]"),
    ],
)
def test_ranks_with_different_states_get_an_error(together, tmp_path, state_of, message) -> None:
    def save(ranks) -> None:
        checkpointer = Checkpointer(tmp_path, group=ranks)
        checkpointer.save(1, state_of(ranks.rank))
        with pytest.raises((CheckpointError, MismatchError), match=message):
            checkpointer.wait()
        assert checkpointer.newest() is None

    together(2, save)


def test_a_rank_that_cannot_write_is_named_on_all_ranks(together, tmp_path) -> None:
    def save(ranks) -> None:
        checkpointer = Checkpointer(tmp_path, group=ranks)
        file = f"rank-00001-of-00003.{checkpointer._session}-1.safetensors"
        if ranks.rank == 0:
            (tmp_path / "step-00000001" / file).mkdir(parents=True)
        ranks.gather("")
        checkpointer.save(1, big_state(1))
        with pytest.raises(CheckpointError, match=r"rank 1 cannot write to .*step-00000001: Is a"):
            checkpointer.wait()
        assert checkpointer.newest() is None

    together(3, save)


def test_a_rank_that_does_not_come_is_named(together, tmp_path) -> None:
    def save(ranks) -> None:
        checkpointer = Checkpointer(tmp_path, group=ranks, timeout_seconds=0.2)
        if ranks.rank == 0:
            checkpointer.save(1, {"x": 1})
            with pytest.raises(CheckpointError, match="rank 1, 2 did not write its part in 0 s"):
                checkpointer.wait()

    together(3, save)


def test_a_killed_save_of_the_same_step_leaves_nothing_that_counts(tmp_path) -> None:
    checkpointer = Checkpointer(tmp_path, keep=1)
    checkpointer.save(5, {"x": torch.ones(10)})
    checkpointer.wait()
    folder = tmp_path / "step-00000005"
    (folder / "rank-00000-of-00002.aaaaaaaa-1.json").write_text("{}")
    (folder / "rank-00000-of-00002.aaaaaaaa-1.safetensors").write_text("half")
    (tmp_path / "step-00000006").mkdir()
    (tmp_path / "step-00000006" / "rank-00000-of-00002.aaaaaaaa-1.safetensors").write_text("half")
    grow_old(tmp_path)
    again = Checkpointer(tmp_path, keep=1)
    again.save(5, {"x": torch.zeros(10)})
    again.wait()
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000005"]
    assert len(list(folder.iterdir())) == 2
    state = {"x": torch.ones(10)}
    assert again.restore(state) == 5
    assert state["x"].sum() == 0


def saved_steps(folder: Path, *steps: int, keep: int | None = None) -> Checkpointer:
    checkpointer = Checkpointer(folder, keep=keep)
    for step in steps:
        checkpointer.save(step, {"x": torch.full((1000,), float(step))})
    checkpointer.wait()
    return checkpointer


def only_file(folder: Path, step: int, pattern: str = "*.safetensors") -> Path:
    (file,) = (folder / f"step-{step:08d}").glob(pattern)
    return file


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "flipped": (lambda path: flip(path, -5), "crc32"),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-1]), r"has \d+ bytes; expected: \d+"),
    "missing": (lambda path: path.unlink(), "does not exist"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("pattern", ["*.safetensors", "manifest.json"])
def test_a_damaged_checkpoint_is_skipped_and_named(tmp_path, caplog, damage, pattern) -> None:
    checkpointer = saved_steps(tmp_path, 1, 2)
    spoil, _ = DAMAGES[damage]
    path = only_file(tmp_path, 2, pattern)
    spoil(path)
    state = {"x": torch.zeros(1000)}
    with caplog.at_level(logging.WARNING):
        assert checkpointer.restore(state) == 1
    assert state["x"].sum() == 1000
    assert "skipped the checkpoint of step 2: " in caplog.text
    assert str(path) in caplog.text
    (entry, _) = checkpointer.list(verify=True)
    assert str(path) in entry.problem


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_asked_for_step_that_is_damaged_is_an_error(tmp_path, damage) -> None:
    checkpointer = saved_steps(tmp_path, 1, 2)
    spoil, message = DAMAGES[damage]
    spoil(only_file(tmp_path, 2))
    with pytest.raises(CheckpointError, match=f"step 2 cannot be restored: .*{message}"):
        checkpointer.restore({"x": torch.zeros(1000)}, step=2)
    spoil(only_file(tmp_path, 1))
    with pytest.raises(
        CheckpointError, match=r"no checkpoint .* can be restored: step 2: .*step 1"
    ):
        checkpointer.restore({"x": torch.zeros(1000)})


def test_all_ranks_skip_what_one_rank_finds_damaged(together, tmp_path) -> None:
    def save(ranks) -> None:
        checkpointer = Checkpointer(tmp_path, group=ranks)
        for step in (1, 2):
            checkpointer.save(step, {"x": PerRank(torch.full((9,), float(step)))})
        checkpointer.wait()

    def restore(ranks) -> tuple[int | None, float]:
        state = {"x": PerRank(torch.zeros(9))}
        step = Checkpointer(tmp_path, group=ranks).restore(state)
        return step, state["x"].value.sum().item()

    together(3, save)
    flip(only_file(tmp_path, 2, "rank-00001-*"), -1)
    assert together(3, restore) == [(1, 9.0)] * 3


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"x": torch.zeros(999)}, r"'x' is torch.float32 \[999\], but torch.float32 \[1000\]"),
        ({"x": torch.zeros(1000).half()}, "torch.float16"),
        ({"y": 1}, "has no 'y', but it has 'x'"),
        ({"x": {"z": 1}}, "'x' is a dict in the state"),
    ],
)
def test_a_state_of_another_form_is_an_error(tmp_path, state, message) -> None:
    checkpointer = saved_steps(tmp_path, 1)
    with pytest.raises(MismatchError, match=message):
        checkpointer.restore(state)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "'x' of the state is a object; allowed: tensors"),
        (torch.zeros(2, dtype=torch.complex128), "dtype torch.complex128; allowed: float64"),
        (torch.zeros(2, 2).to_sparse(), "layout"),
        (torch.zeros(2, device="meta"), "meta"),
    ],
)
def test_a_value_that_cannot_be_saved_is_named(tmp_path, value, message) -> None:
    with pytest.raises(UsageError, match=message):
        Checkpointer(tmp_path).save(1, {"x": value})


def test_wrong_arguments_are_named(tmp_path) -> None:
    with pytest.raises(UsageError, match="keep is 0"):
        Checkpointer(tmp_path, keep=0)
    with pytest.raises(UsageError, match="step is -1"):
        Checkpointer(tmp_path).save(-1, {})
    with pytest.raises(UsageError, match=r"two tensors .* have the name 'a\.b'"):
        Checkpointer(tmp_path).save(1, {"a.b": torch.ones(1), "a": {"b": torch.ones(1)}})
    with pytest.raises(UsageError, match="nowhere://x"):
        Checkpointer("nowhere://x")
    with pytest.raises(UsageError, match="group is a int"):
        Checkpointer(tmp_path, group=3)


def test_ranks_that_do_not_know_each_other_are_refused(tmp_path, monkeypatch) -> None:
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "127.0.0.1")):
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="the launcher started 4 ranks, which do not know"):
        Checkpointer(tmp_path)


def test_old_checkpoints_stay_while_the_newest_are_damaged(tmp_path) -> None:
    saved_steps(tmp_path, 1, 2, 3)
    flip(only_file(tmp_path, 3, "manifest.json"), 60)
    only_file(tmp_path, 2).write_text("cut")
    checkpointer = Checkpointer(tmp_path, keep=2)
    checkpointer.save(4, {"x": torch.zeros(1000)})
    checkpointer.wait()
    assert [entry.step for entry in checkpointer.list()] == [4, 3, 2, 1]
    assert [entry.is_whole for entry in checkpointer.list()] == [True, False, False, True]


def test_checkpoints_that_cannot_be_read_now_stay(tmp_path) -> None:
    saved_steps(tmp_path, 1, 2)
    manifest = only_file(tmp_path, 1, "manifest.json")
    manifest.rename(manifest.with_name("away"))
    manifest.mkdir()  # reading it fails, as on a file system that is gone for a moment
    (tmp_path / "step-00000003").mkdir()  # its save did not end
    os.utime(tmp_path / "step-00000003", (1e9, 1e9))
    checkpointer = Checkpointer(tmp_path)
    checkpointer.save(4, {"x": 1})
    checkpointer.wait()
    assert [entry.step for entry in checkpointer.list()] == [4, 2, 1]
    assert manifest.with_name("away").exists()


def test_what_lies_behind_a_link_stays(tmp_path) -> None:
    saved_steps(tmp_path / "archive", 1)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "step-00000001").symlink_to(tmp_path / "archive" / "step-00000001")
    saved_steps(tmp_path / "runs", 2, 3, keep=1)
    assert [entry.step for entry in Checkpointer(tmp_path / "runs").list()] == [3]
    (archived,) = Checkpointer(tmp_path / "archive").list()
    assert archived.is_whole


def test_a_folder_in_an_old_checkpoint_is_deleted_with_it(tmp_path) -> None:
    saved_steps(tmp_path, 1, 2)
    (tmp_path / "step-00000002" / ".ipynb_checkpoints").mkdir()
    saved_steps(tmp_path, 3, keep=1)
    assert [entry.step for entry in Checkpointer(tmp_path).list()] == [3]


def test_a_manifest_with_a_time_that_no_clock_has_is_damaged(tmp_path) -> None:
    saved_steps(tmp_path, 1)
    path = only_file(tmp_path, 1, "manifest.json")
    for time in ("1e30", "NaN", "-1.0", "Infinity"):
        text = json.dumps(json.loads(path.read_text())["manifest"], separators=(",", ":"))
        text = re.sub(r'"time":[^,}]*', f'"time":{time}', text)
        crc32 = zlib.crc32(text.encode())
        path.write_text(f'{{"crc32": "{crc32:08x}", "manifest": {text}}}\n')
        (found,) = Checkpointer(tmp_path).list()
        assert "time is" in found.problem


def test_a_folder_that_vanished_is_an_error_and_the_next_save_works(tmp_path) -> None:
    folder = tmp_path / "runs"
    folder.write_text("a file")
    checkpointer = Checkpointer(folder)
    checkpointer.save(1, {"x": 1})
    with pytest.raises(CheckpointError, match="rank 0 cannot write"):
        checkpointer.wait()
    folder.unlink()
    checkpointer.save(2, {"x": 1})
    checkpointer.wait()
    shutil.rmtree(folder)
    assert checkpointer.newest() is None
