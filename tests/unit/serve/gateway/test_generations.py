"""Copies of the model files, and when there is something new to copy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("starlette")

from slipstream.errors import UsageError
from slipstream.serve.gateway.generations import ModelFiles
from slipstream.serve.repository import parse_model_specs


@pytest.fixture
def files(tmp_path: Path) -> ModelFiles:
    (tmp_path / "copies").mkdir()
    for name in ("a.slip", "b.slip"):
        (tmp_path / name).write_text(name)
    specs = parse_model_specs([f"m={tmp_path}/a.slip", f"m={tmp_path}/b.slip@10%"])
    return ModelFiles(specs, tmp_path / "copies")


def test_a_copy_stays_when_the_file_changes(files: ModelFiles, tmp_path: Path) -> None:
    first = files.take()
    (tmp_path / "a.slip").write_text("new")
    second = files.take()
    assert (first.number, second.number) == (1, 2)
    assert [model.path.read_text() for model in first.models] == ["a.slip", "b.slip"]
    assert [model.path.read_text() for model in second.models] == ["new", "b.slip"]
    assert [(model.name, model.version, model.share) for model in second.models] == [
        ("m", "1", None),
        ("m", "2", 0.1),
    ]
    assert first.digest != second.digest
    assert first.folder.stat().st_mode & 0o777 == 0o700


def test_a_file_is_new_once_it_stays_as_it_is(files: ModelFiles, tmp_path: Path) -> None:
    files.take()
    assert not files.have_changed()
    path = tmp_path / "a.slip"
    path.write_text("half")
    assert not files.have_changed()
    path.write_text("half of it")
    assert not files.have_changed()
    assert files.have_changed()
    files.take()
    assert not files.have_changed()


def test_copies_that_nobody_needs_are_deleted(files: ModelFiles, tmp_path: Path) -> None:
    for _ in range(3):
        files.take()
    files.discard({1, 3})
    files.discard({3})
    assert [path.name for path in (tmp_path / "copies").iterdir()] == ["3"]


def test_a_file_that_is_gone_is_not_new(files: ModelFiles, tmp_path: Path) -> None:
    files.take()
    os.rename(tmp_path / "a.slip", tmp_path / "old")
    for _ in range(3):
        assert not files.have_changed()
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        files.take()
