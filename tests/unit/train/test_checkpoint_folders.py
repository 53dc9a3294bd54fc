"""Folders with damaged manifests, with checkpoints of other programs, and of two jobs at once."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import torch

from slipstream.train.checkpoint import Checkpointer, CheckpointError
from slipstream.train.checkpoint.storage import LocalStorage


def saved(folder: Path, *steps: int, keep: int | None = None) -> Checkpointer:
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


def test_a_job_whose_files_another_job_has_removed_is_told(together, tmp_path, monkeypatch) -> None:
    """The save once ended without an error, and had a manifest but no files."""
    real = LocalStorage.write

    def write(storage, name, data) -> None:
        real(storage, name, data)
        if "rank-00001" in name and name.endswith("safetensors"):
            saved(tmp_path, 100)  # the other job

    def save(ranks) -> None:
        checkpointer = Checkpointer(tmp_path, group=ranks, timeout_seconds=20)
        checkpointer.save(5, {"x": torch.zeros(200_000)})
        with pytest.raises(CheckpointError, match="each job needs a folder of its own"):
            checkpointer.wait()

    monkeypatch.setattr(LocalStorage, "write", write)
    together(2, save)


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
