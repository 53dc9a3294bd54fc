"""New files take the place of old ones."""

from __future__ import annotations

import asyncio
import logging
import os

import pytest

pytest.importorskip("starlette")

from slipstream.serve.watcher import ModelWatcher

NAME = "slipstream.serve.watcher"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.slip"
    path.write_bytes(b"old")
    return path


@pytest.fixture
def look(repository, path, sums, caplog):
    """Return a function that checks the file once, and returns the number of loads so far."""
    caplog.set_level(logging.INFO, NAME)
    models = repository(f"m={path}")
    watch = ModelWatcher(models, 1.0)

    def look():
        asyncio.run(watch.check(models.specs[0]))
        return len(sums.loaded)

    return look


def test_a_file_that_changed_is_loaded_once_it_stays_the_same(look, path, caplog):
    assert [look(), look()] == [0, 0]
    path.write_bytes(b"newer")
    assert look() == 0
    path.write_bytes(b"newest")
    assert look() == 0
    assert [look(), look(), look()] == [1, 1, 1]
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("INFO", f"m, version 1, was loaded from {path}")
    ]


def test_a_model_that_takes_something_else_is_warned_of(repository, path, sums, caplog, signature):
    caplog.set_level(logging.INFO, NAME)
    models = repository(f"m={path}")
    watch = ModelWatcher(models, 1.0)

    async def reload(content):
        path.write_bytes(content)
        await watch.check(models.specs[0])
        await watch.check(models.specs[0])

    asyncio.run(reload(b"first"))
    asyncio.run(reload(b"second"))
    assert [each.levelname for each in caplog.records] == ["INFO", "INFO"]
    other = signature({"x": (2, 2)}, {"y": (2,), "z": (2,)})
    sums.manifest = sums.manifest.model_copy(update={"outputs": other.outputs})
    asyncio.run(reload(b"the third"))
    assert [each.levelname for each in caplog.records[2:]] == ["INFO", "WARNING"]
    said = caplog.records[-1].getMessage()
    assert said.startswith("m, version 1, HAS OTHER INPUTS OR OUTPUTS NOW: x FP32 [-1, 2] to y")
    assert said.endswith("z FP32 [-1]; before: x FP32 [-1, 2] to y FP32 [-1]")


def test_a_file_of_the_same_size_is_new_by_its_time_or_as_another_file(look, path, tmp_path):
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1))
    assert [look(), look()] == [0, 1]
    other = tmp_path / "other"
    other.write_bytes(b"old")
    os.utime(other, ns=(found.st_atime_ns, found.st_mtime_ns + 1))
    other.replace(path)
    assert [look(), look()] == [1, 2]


def test_a_file_that_is_gone_is_waited_for(look, path):
    path.unlink()
    assert [look(), look()] == [0, 0]
    path.write_bytes(b"new")
    assert [look(), look(), look()] == [0, 1, 1]


def test_what_cannot_be_served_is_told_once(repository, tmp_path, caplog, sums):
    path = tmp_path / "bad.slip"
    models = repository(f"m={path}")
    watch = ModelWatcher(models, 1.0)
    path.write_bytes(b"bad")
    for _ in range(4):
        asyncio.run(watch.check(models.specs[0]))
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage() == f"m, version 1, is not replaced: {path} is no package"
    assert sums.loaded == []


def test_it_looks_at_each_file_once_a_period(repository, path, sums, run_stepped):
    async def main(loop):
        models = repository(f"m={path}", f"n={path}")
        task = asyncio.ensure_future(ModelWatcher(models, 5.0).run())
        await asyncio.sleep(1)
        path.write_bytes(b"newer")
        await asyncio.sleep(8.5)  # it looked after 5
        assert sums.loaded == []
        await asyncio.sleep(1)  # and after 10
        assert [key for key, _ in sums.loaded] == ["m/1/1", "n/1/2"]
        task.cancel()

    run_stepped(main)
