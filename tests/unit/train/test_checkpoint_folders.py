"""Folders with damaged manifests, with checkpoints of other programs, and of two jobs at once."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem

from slipstream.train.checkpoint import Checkpointer, CheckpointError, open_storage
from slipstream.train.checkpoint.storage import LocalStorage


def failing(error: Exception) -> Callable[..., None]:
    """Return a function that raises an error, whatever its arguments are."""

    def fail(*arguments: object) -> None:
        raise error

    return fail


def saved(folder: Path | str, *steps: int, keep: int | None = None) -> Checkpointer:
    checkpointer = Checkpointer(folder, keep=keep)
    for step in steps:
        checkpointer.save(step, {"x": torch.full((9,), float(step))})
    checkpointer.wait()
    return checkpointer


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[60] ^= 1
    path.write_bytes(content)


def newer_version(path: Path) -> None:
    text = json.dumps(json.loads(path.read_text())["manifest"] | {"version": 2}).encode()
    path.write_bytes(b'{"crc32": "%08x", "manifest": %s}\n' % (zlib.crc32(text), text))


def unreadable(path: Path) -> None:
    path.unlink()
    path.mkdir()  # reading it fails, as on a file system with an error


@pytest.mark.parametrize("spoil", [flipped, newer_version, unreadable])
def test_a_training_does_not_begin_anew_if_the_only_manifest_is_damaged(tmp_path, spoil) -> None:
    checkpointer = saved(tmp_path, 1)
    spoil(tmp_path / "step-00000001" / "manifest.json")
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be restored: step 1: "):
        checkpointer.restore({"x": torch.zeros(9)})


def test_a_checkpoint_that_only_some_ranks_see_is_an_error(together, tmp_path) -> None:
    """The folder is no shared one; without an error, all ranks would begin anew."""
    saved(tmp_path / "0", 1)

    def restore(ranks) -> None:
        checkpointer = Checkpointer(tmp_path / str(ranks.rank), group=ranks)
        with pytest.raises(CheckpointError, match=r"step 1: .*/1/step-00000001.* does not exist"):
            checkpointer.restore({"x": torch.zeros(9)})

    together(2, restore)


def test_a_folder_that_rank_0_cannot_list_is_an_error_on_all_ranks(
    together, tmp_path, monkeypatch
) -> None:
    def names(storage, folder=""):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(LocalStorage, "names", names)

    def restore(ranks) -> None:
        with pytest.raises(CheckpointError, match="cannot be read: Permission denied"):
            Checkpointer(tmp_path, group=ranks).restore({})

    together(2, restore)


def test_checkpoints_of_other_programs_stay(tmp_path) -> None:
    """LitGPT names its folders as Slipstream does."""
    for step in (1, 2, 900):
        other = tmp_path / f"step-{step:08d}" / "lit_model.pth"
        other.parent.mkdir()
        other.write_text("weights")
    (tmp_path / "step-00000004").mkdir()
    (tmp_path / "step-00000004" / "notes.txt").write_text("written beside the save")
    saved(tmp_path, 3, 4, 5, keep=2)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*.[pt]*"))
    assert left == [
        "step-00000001/lit_model.pth",
        "step-00000002/lit_model.pth",
        "step-00000004/notes.txt",
        "step-00000900/lit_model.pth",
    ]
    assert Checkpointer(tmp_path).restore({"x": torch.zeros(9)}) == 5


def test_a_job_whose_files_were_removed_is_told(together, tmp_path, monkeypatch) -> None:
    """The save once ended without an error, and had a manifest but no files."""
    real = LocalStorage.write

    def write(storage, name, data) -> None:
        real(storage, name, data)
        if "rank-00001" in name and name.endswith("safetensors"):
            (tmp_path / name).unlink()

    def save(ranks) -> None:
        checkpointer = Checkpointer(tmp_path, group=ranks, timeout_seconds=20)
        checkpointer.save(5, {"x": torch.zeros(200_000)})
        with pytest.raises(CheckpointError, match="each job needs a folder of its own"):
            checkpointer.wait()

    monkeypatch.setattr(LocalStorage, "write", write)
    together(2, save)


@pytest.mark.parametrize("step", [4, 5, 6])
def test_a_live_save_of_another_job_stays(together, tmp_path, monkeypatch, step) -> None:
    """Another job once deleted the files, and this one ended with an error."""
    real = LocalStorage.write

    def write(storage, name, data) -> None:
        real(storage, name, data)
        if "rank-00001" in name and name.endswith("safetensors"):
            saved(tmp_path, step, keep=1)  # the other job

    def save(ranks) -> None:
        checkpointer = Checkpointer(tmp_path, group=ranks, timeout_seconds=20)
        checkpointer.save(5, {"x": torch.ones(200_000)})
        checkpointer.wait()
        state = {"x": torch.zeros(200_000)}
        assert checkpointer.restore(state, step=5) == 5
        assert state["x"].sum() == 200_000

    monkeypatch.setattr(LocalStorage, "write", write)
    together(2, save)


def test_what_dead_saves_left_is_deleted_once_it_is_old(tmp_path) -> None:
    rests = (
        "step-00000007/rank-00000-of-00002.aaaaaaaa-1.safetensors.0a1b2c3d.tmp",
        "step-00000007/failed.aaaaaaaa-1.json",
        "step-00000008",
        "step-00000009/manifest.json.0a1b2c3d.tmp",
        "step-00000001/rank-00001-of-00002.aaaaaaaa-1.safetensors",
    )
    for rest in rests:
        path = tmp_path / rest
        (path.parent if path.suffix else path).mkdir(exist_ok=True)
        if path.suffix:
            path.write_text("half")
    saved(tmp_path, 1)
    assert all((tmp_path / rest).exists() for rest in rests)
    for rest in rests[:-1]:
        for path in (tmp_path / rest, tmp_path / rest.split("/")[0]):
            os.utime(path, (1e9, 1e9))
    saved(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001", "step-00000002"]
    os.utime(tmp_path / rests[-1], (1e9, 1e9))
    saved(tmp_path, 1)
    assert len(list((tmp_path / "step-00000001").iterdir())) == 2


def test_nothing_unfinished_is_deleted_by_a_job_whose_manifest_is_gone(
    tmp_path, monkeypatch
) -> None:
    """The time of the manifest tells the present time of the storage."""
    real = LocalStorage.write

    def write(storage, name, data) -> None:
        real(storage, name, data)
        if name.endswith("manifest.json"):
            (tmp_path / name).unlink()

    monkeypatch.setattr(LocalStorage, "write", write)
    (tmp_path / "step-00000007").mkdir()
    os.utime(tmp_path / "step-00000007", (1e9, 1e9))
    saved(tmp_path, 1)
    assert (tmp_path / "step-00000007").exists()


def test_what_the_same_job_left_is_deleted_at_once(tmp_path, monkeypatch) -> None:
    checkpointer = saved(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", failing(OSError(errno.ENOSPC, "No space left on device")))
        checkpointer.save(2, {"x": 1})
        with pytest.raises(CheckpointError, match="No space left"):
            checkpointer.wait()
    (tmp_path / "step-00000002" / f"rank-00000-of-00001.{checkpointer._session}-2.json").touch()
    checkpointer.save(3, {"x": 1})
    checkpointer.wait()
    assert [entry.step for entry in checkpointer.list()] == [3, 1]


def test_a_storage_without_times_keeps_no_unfinished_save(monkeypatch) -> None:
    """Killed saves are more frequent than two jobs in a folder, and would fill the storage."""

    def modified(file_system, path):
        raise NotImplementedError

    url = f"memory://{uuid.uuid4().hex}"
    name = "step-00000007/rank-00000-of-00002.aaaaaaaa-1.safetensors"
    open_storage(url).write(name, memoryview(b"half"))
    saved(url, 1)
    assert open_storage(url).size(name) == 4
    monkeypatch.setattr(MemoryFileSystem, "modified", modified)
    saved(url, 2)
    assert open_storage(url).size(name) is None


def test_new_folders_survive_a_power_cut(tmp_path, monkeypatch) -> None:
    """Each folder that a save makes is synchronized in the folder above it."""
    synchronized = []
    real = os.fsync

    def fsync(descriptor) -> None:
        synchronized.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    saved(tmp_path / "runs" / "7", 1)
    assert {str(tmp_path), str(tmp_path / "runs"), str(tmp_path / "runs" / "7")} <= {*synchronized}


LAST_SAVE = """
import sys, torch
from slipstream.train.checkpoint import Checkpointer
checkpointer = Checkpointer(sys.argv[1])
checkpointer.save(1, {"x": torch.zeros(9)})
"""


def test_the_error_of_a_save_that_nobody_waits_for_is_logged(tmp_path) -> None:
    folder = tmp_path / "runs"
    folder.write_text("a file")
    done = subprocess.run(
        [sys.executable, "-c", LAST_SAVE, str(folder)],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "rank 0: step 1 cannot be saved: rank 0 cannot write" in done.stderr or (
        "rank 0: the checkpoint of step 1 is not whole: rank 0 cannot write" in done.stderr
    )
