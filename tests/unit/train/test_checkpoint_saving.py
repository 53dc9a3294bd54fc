"""How ranks end a save together: errors after the manifest, ranks that end or are lost."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem

from slipstream.train.checkpoint import Checkpointer, CheckpointError
from slipstream.train.checkpoint.save_job import SaveJob
from slipstream.train.checkpoint.saving import write_checkpoint
from slipstream.train.checkpoint.snapshot import HostImage
from slipstream.train.checkpoint.storage import LocalStorage

LIMIT_SECONDS = 60.0


def save_on(together, folder: Path | str, num_ranks: int = 3, match: str = "") -> None:
    """Save a step on all ranks, which all succeed or, with `match`, all raise such an error."""

    def save(ranks) -> None:
        checkpointer = Checkpointer(folder, group=ranks, timeout_seconds=LIMIT_SECONDS)
        checkpointer.save(5, {"x": torch.ones(200_000)})
        if match:
            with pytest.raises(CheckpointError, match=match):
                checkpointer.wait()
        else:
            checkpointer.wait()
            assert checkpointer.newest() == 5

    together(num_ranks, save)


def test_a_disk_without_room_for_the_end_of_the_save_lets_nobody_wait(
    together, tmp_path, monkeypatch
) -> None:
    """Notes took the last room; rank 0 raised its error, and the others waited for its word."""
    real = LocalStorage.write

    def write(storage, name, data) -> None:
        has_room = not list(tmp_path.glob("*/rank-*.json"))
        is_large = "rank-00000-of" in name and name.endswith(".safetensors")
        if is_large or ("failed." in name and not has_room):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        real(storage, name, data)

    monkeypatch.setattr(LocalStorage, "write", write)
    save_on(together, tmp_path, match="No space left on device|is not whole|was disturbed")


@pytest.mark.parametrize("failing", ["rank-00000-of", "rank-00002-of"])
def test_a_note_that_cannot_be_removed_is_no_error(
    together, tmp_path, monkeypatch, caplog, failing
) -> None:
    """Rank 0 once failed alone, and the other ranks waited for the removal of their notes."""
    real = LocalStorage.remove

    def remove(storage, name) -> None:
        if failing in name:
            raise OSError(errno.EIO, "Input/output error")
        real(storage, name)

    monkeypatch.setattr(LocalStorage, "remove", remove)
    save_on(together, tmp_path)
    assert "the save of step 5 has ended, but its notes cannot be changed" in caplog.text


def test_a_rank_that_was_not_told_looks_for_the_manifest(together, tmp_path, monkeypatch) -> None:
    """Rank 0 was lost after it wrote the manifest, or can write and remove nothing more."""
    real_write, real_remove = LocalStorage.write, LocalStorage.remove

    def refuse(name: str) -> None:
        if "rank-0000" in name or "failed" in name:
            raise OSError(errno.EROFS, "Read-only file system")

    def write(storage, name, data) -> None:
        if (tmp_path / "step-00000005" / "manifest.json").exists():
            refuse(name)
        real_write(storage, name, data)

    def remove(storage, name) -> None:
        refuse(name)
        real_remove(storage, name)

    def save(ranks) -> None:
        checkpointer = Checkpointer(tmp_path, group=ranks, timeout_seconds=2.0)
        checkpointer.save(5, {"x": torch.ones(200_000)})
        checkpointer.wait()

    monkeypatch.setattr(LocalStorage, "write", write)
    monkeypatch.setattr(LocalStorage, "remove", remove)
    together(3, save)


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_an_error_after_the_manifest_is_there_is_a_warning(
    together, tmp_path, monkeypatch, caplog, num_ranks
) -> None:
    """The folder cannot be synchronized; so nothing that is older is deleted."""
    for step in (1, 2):
        checkpointer = Checkpointer(tmp_path, keep=None)
        checkpointer.save(step, {"x": torch.ones(200_000)})
        checkpointer.wait()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        where = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if where.is_dir() and (where / "manifest.json").exists() and where.name[-1] == "5":
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    save_on(together, tmp_path, num_ranks)
    assert "step 5 is whole, but may not survive a crash" in caplog.text


def test_a_storage_that_fails_for_a_moment_is_asked_again(together, tmp_path, monkeypatch) -> None:
    """A rank other than 0 once failed alone."""
    real = LocalStorage.size
    failed: set[str] = set()

    def size(storage, name):
        if threading.current_thread().name == "checkpoint" and name not in failed:
            failed.add(name)
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(storage, name)

    monkeypatch.setattr(LocalStorage, "size", size)
    save_on(together, tmp_path)
    assert len(failed) > 3


class ClientError(Exception):
    """An error of an object store's client, which is no OSError."""


@pytest.mark.parametrize("failing", ["rank-00000-of", "rank-00001-of", "manifest.json"])
def test_errors_of_a_client_reach_all_ranks(together, monkeypatch, failing) -> None:
    """All other ranks once waited for the whole time limit."""
    real = MemoryFileSystem.pipe_file

    def pipe_file(file_system, path, value, **options) -> None:
        name = path.rpartition("/")[2]
        if name == failing or (name.startswith(failing) and name.endswith(".safetensors")):
            raise ClientError("the endpoint does not answer")
        real(file_system, path, value, **options)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe_file)
    save_on(
        together,
        f"memory://{uuid.uuid4().hex}",
        match="ClientError: the endpoint does not answer",
    )


def write_note(folder: Path, rank: int, lost: Mapping[int, str]) -> None:
    """Take part in a save of three ranks that have no tensors."""
    job = SaveJob(
        storage=LocalStorage(folder),
        step=5,
        time=0.0,
        save="aa-1",
        rank=rank,
        num_ranks=3,
        keep=None,
        timeout_seconds=LIMIT_SECONDS,
        lost=lambda: lost,
    )
    image = HostImage()
    layout = image.take([])
    write_checkpoint(job, image.data, layout, [], {"n": 1})


@pytest.mark.parametrize("rank", [0, 2])
def test_ranks_do_not_wait_for_one_that_is_lost(tmp_path, rank) -> None:
    """They once waited for the whole time limit."""
    lost = {rank: "is gone: connection reset"}
    with ThreadPoolExecutor(2) as pool:
        others = {each for each in range(3) if each != rank}
        for saving in [pool.submit(write_note, tmp_path, each, lost) for each in others]:
            with pytest.raises(CheckpointError, match=rf"rank {rank}, which did not .*, is gone"):
                saving.result(LIMIT_SECONDS)


def test_a_rank_that_is_lost_after_its_part_does_no_harm(tmp_path) -> None:
    with ThreadPoolExecutor(3) as pool:
        savings = [pool.submit(write_note, tmp_path, 2, {})]
        deadline = time.monotonic() + LIMIT_SECONDS
        while not list(tmp_path.glob("*/rank-00002-of-00003.aa-1.json")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        lost = {2: "is gone: connection reset"}
        savings += [pool.submit(write_note, tmp_path, rank, lost) for rank in (0, 1)]
        for saving in savings:
            saving.result(LIMIT_SECONDS)
    assert Checkpointer(tmp_path).newest() == 5


FIRST_OF_TWO = """
import sys, torch
from slipstream.train.checkpoint import Checkpointer

class Ranks:
    rank, num_ranks = int(sys.argv[2]), 2
    def gather(self, text):
        return [text, text]

checkpointer = Checkpointer(sys.argv[1], group=Ranks())
checkpointer.save(1, {"x": torch.zeros(9)})
raise KeyboardInterrupt
"""


def test_a_rank_that_is_interrupted_does_not_wait_for_one_that_does_not_save(tmp_path) -> None:
    """It once waited for 30 s, and then said that the folder was to blame."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", FIRST_OF_TWO, str(tmp_path / str(rank)), str(rank)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    for rank, process in enumerate(ranks):
        _, text = process.communicate(timeout=LIMIT_SECONDS)
        assert f"has changed for 5 s; rank {1 - rank} has most likely ended" in text
        assert "to one folder" not in text


WITH_A_SLOW_RANK = """
import json, pathlib, sys, threading, time
from slipstream.train.checkpoint import Checkpointer, save_job

save_job.LAST_SECONDS = 2.0
folder = pathlib.Path(sys.argv[1], "step-00000001")

class Ranks:
    rank, num_ranks = 0, 2
    def gather(self, text):
        return [text, text]

def write_slowly():
    name = f"rank-00001-of-00002.{checkpointer._session}-1"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{name}.safetensors.0a1b2c3d.tmp", "w", buffering=1) as file:
        for _ in range(50):
            print("more", file=file)
            time.sleep(0.1)
    note = {"error": "", "state": {"x": 1}, "file": None, "tensors": {}}
    (folder / "note").write_text(json.dumps(note) + "\\n")
    (folder / "note").rename(folder / f"{name}.json")

checkpointer = Checkpointer(sys.argv[1], group=Ranks())
checkpointer.save(1, {"x": 1})
threading.Thread(target=write_slowly).start()
"""


def test_a_process_waits_after_its_main_thread_as_long_as_others_write(tmp_path) -> None:
    """It once gave up after a certain time, and the last checkpoint was lost."""
    done = subprocess.run(
        [sys.executable, "-c", WITH_A_SLOW_RANK, str(tmp_path)],
        capture_output=True, text=True, check=True, timeout=LIMIT_SECONDS,
    )  # fmt: skip
    assert Checkpointer(tmp_path).newest() == 1, done.stderr


def test_a_save_that_a_restore_would_not_take_is_told_once(tmp_path, caplog) -> None:
    """The user goes back to an earlier step, and saves to the same folder."""

    def saved(*steps: int) -> str:
        checkpointer = Checkpointer(tmp_path, keep=None)
        caplog.clear()
        for step in steps:
            checkpointer.save(step, {"x": torch.ones(3)})
        checkpointer.wait()
        return "\n".join(record.getMessage() for record in caplog.records)

    with caplog.at_level(logging.WARNING):
        assert "also has step" not in saved(100, 150, 200)
        assert "also has step" not in saved(200)
        text = saved(110, 120)
    assert text.count("also has step 200: restore() takes the newest step") == 1
    assert "step 110 was saved" in text
