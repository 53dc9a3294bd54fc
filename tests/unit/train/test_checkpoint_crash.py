"""A crash after each operation of a save: a whole checkpoint is always found."""

from __future__ import annotations

import errno
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from slipstream.train.checkpoint import Checkpointer
from slipstream.train.checkpoint.manifest import BLOCK_BYTES
from slipstream.train.checkpoint.storage import LocalStorage


class PowerCutError(BaseException):
    """The end of the machine; no code of the product catches it."""


class Disk:
    """The calls by which files change, counted; one of them can be the last one.

    Calls go through to the file system. At the cut, files that were not synchronized lose their
    last byte, as if the cache had not been written, and renames stay.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.last = -1
        self._dirty: dict[str, None] = {}
        self._real = {name: getattr(os, name) for name in ("write", "fsync", "unlink", "rmdir")}
        for name in self._real:
            monkeypatch.setattr(os, name, self._wrap(name))
        real_replace = Path.replace

        def replace(path: Path, target: Path) -> Path:
            self._count(f"replace {target.name}")
            if self._dirty.pop(str(path), False) is None:
                self._dirty[str(target)] = None
            return real_replace(path, target)

        monkeypatch.setattr(Path, "replace", replace)

    def start(self, last: int) -> None:
        """Count from 0; the call `last` does not happen any more."""
        self.calls, self.last = [], last

    def _count(self, call: str) -> None:
        if len(self.calls) == self.last:
            for name in self._dirty:
                os.truncate(name, max(os.path.getsize(name) - 1, 0))
            self._dirty.clear()
            raise PowerCutError
        self.calls.append(call)

    def _wrap(self, name: str):
        def call(first, *rest, **options):
            where = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else str(first)
            if "step-" not in where:
                return self._real[name](first, *rest, **options)
            self._count(f"{name} {os.path.basename(where)}")
            if name == "write":
                self._dirty[where] = None
            if name == "fsync":
                self._dirty.pop(where, None)
            return self._real[name](first, *rest, **options)

        return call


def save(folder: Path, step: int, num: int) -> None:
    checkpointer = Checkpointer(folder, keep=1)
    checkpointer.save(step, {"x": torch.full((5000,), float(num)), "n": num})
    checkpointer.wait()


def crash(folder: Path, step: int, num: int) -> None:
    """Save on this thread, until the machine ends."""
    from slipstream.train.checkpoint import checkpointer as module

    class SameThread:
        def __init__(self, target, name: str) -> None:
            self._target = target

        def start(self) -> None:
            self._target()

        def join(self) -> None:
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.threading, "Thread", SameThread)
        save(folder, step, num)


@pytest.mark.parametrize("step", [1, 2], ids=["the same step", "another step"])
def test_a_power_cut_at_any_moment_leaves_a_whole_checkpoint(tmp_path, monkeypatch, step) -> None:
    disk = Disk(monkeypatch)
    for last in itertools.count():
        folder = tmp_path / str(last)
        disk.start(-1)
        save(folder, 1, 10)
        disk.start(last)
        try:
            crash(folder, step, 20)
        except PowerCutError:
            ended = False
        else:
            ended = True
        is_published = "replace manifest.json" in disk.calls
        disk.start(-1)
        state = {"x": torch.zeros(5000), "n": 0}
        found = Checkpointer(folder).restore(state)
        assert state["x"].unique().tolist() == [state["n"]]
        assert (found, state["n"]) == ((step, 20) if is_published else (1, 10))
        for path in folder.rglob("*"):
            os.utime(path, (1e9, 1e9))  # long ago
        save(folder, 3, 30)  # what the crash left is no obstacle, and is deleted
        assert [path.name for path in folder.iterdir()] == ["step-00000003"]
        if ended:
            break
    assert last > 8


def test_files_are_safe_before_the_manifest_is_written(tmp_path, monkeypatch) -> None:
    disk = Disk(monkeypatch)
    save(tmp_path, 1, 10)
    calls = [call.split(" ")[0] + " manifest" * ("manifest" in call) for call in disk.calls]
    assert [call for call, _ in itertools.groupby(calls)] == [
        *("write", "fsync", "replace", "fsync"),
        *("write manifest", "fsync manifest", "replace manifest", "fsync"),
    ]


def test_a_file_system_without_direct_writes_gets_the_same_bytes(tmp_path, monkeypatch) -> None:
    """/proc and some network file systems refuse O_DIRECT at the first write."""
    real = os.write
    refused = []

    def write(descriptor, data):
        import fcntl

        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            refused.append(len(data))
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    checkpointer = Checkpointer(tmp_path)
    checkpointer.save(1, {"x": torch.arange(10_000)})
    checkpointer.wait()
    assert refused
    assert checkpointer.list(verify=True)[0].is_whole


def test_a_full_disk_keeps_nothing_of_a_file(tmp_path, monkeypatch) -> None:
    def write(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space left"):
        LocalStorage(tmp_path).write("step-00000001/x", memoryview(b"content"))
    assert list((tmp_path / "step-00000001").iterdir()) == []


def test_tensors_of_several_blocks_are_read_and_checked(tmp_path) -> None:
    checkpointer = Checkpointer(tmp_path)
    tensor = torch.randint(0, 255, (2 * BLOCK_BYTES + 12_345,), dtype=torch.uint8)
    checkpointer.save(1, {"small": torch.ones(3), "x": tensor})
    checkpointer.wait()
    state = {"x": torch.zeros_like(tensor)}
    assert checkpointer.restore(state) == 1
    assert torch.equal(state["x"], tensor)
    (file,) = (tmp_path / "step-00000001").glob("*.safetensors")
    content = bytearray(file.read_bytes())
    content[BLOCK_BYTES + 5] ^= 4
    file.write_bytes(content)
    problem = checkpointer.list(verify=True)[0].problem
    assert f"bytes {BLOCK_BYTES} to {2 * BLOCK_BYTES}: the crc32 is" in problem


def test_processes_that_write_the_same_file_leave_one_of_theirs(tmp_path) -> None:
    """Two jobs that saved into one folder once mixed the bytes of their manifests."""
    storage = LocalStorage(tmp_path)
    contents = [bytes([letter]) * 50_000 for letter in b"ab"]
    for _ in range(20):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda data: storage.write("manifest.json", memoryview(data)), contents))
        assert (tmp_path / "manifest.json").read_bytes() in contents
    assert os.listdir(tmp_path) == ["manifest.json"]
