"""Buckets of a job: files that every host gets, and changed ones that are sent back."""

from __future__ import annotations

from pathlib import Path

import fsspec  # pyright: ignore[reportMissingTypeStubs]
import pytest

from slipstream.cluster.head.storage.buckets import bring, send_back
from slipstream.errors import ConfigError


@pytest.mark.parametrize("ending", ["", "/"])
def test_files_come_once_and_changed_ones_go_back(tmp_path: Path, ending: str) -> None:
    url = f"memory://storage{len(ending)}/results{ending}"
    system = fsspec.filesystem("memory")  # pyright: ignore
    root = url.removeprefix("memory:/").rstrip("/")
    system.pipe_file(f"{root}/a/first.txt", b"first")  # pyright: ignore
    system.pipe_file(f"{root}/second.txt", b"second")  # pyright: ignore
    folder = tmp_path / "results"
    assert bring(url, folder) == 2
    assert bring(url, folder) == 0
    assert (folder / "a" / "first.txt").read_text() == "first"

    assert send_back(url, folder) == 0
    (folder / "second.txt").write_text("changed by the job")
    (folder / "new").mkdir()
    (folder / "new" / "third.txt").write_text("third")
    assert send_back(url, folder) == 2
    assert send_back(url, folder) == 0
    assert system.cat_file(f"{root}/second.txt") == b"changed by the job"  # pyright: ignore
    assert system.cat_file(f"{root}/new/third.txt") == b"third"  # pyright: ignore
    assert system.cat_file(f"{root}/a/first.txt") == b"first"  # pyright: ignore
    assert len(system.find(root)) == 3  # pyright: ignore


def test_a_folder_that_does_not_exist_yet_is_made_at_the_end(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket/new"
    assert bring(url, tmp_path / "here") == 0
    (tmp_path / "here" / "model.pt").write_text("weights")
    assert send_back(url, tmp_path / "here") == 1
    assert (tmp_path / "bucket" / "new" / "model.pt").read_text() == "weights"


def test_an_unknown_kind_of_url_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="bucket nowhere://b cannot be used on this host"):
        bring("nowhere://b", tmp_path)
