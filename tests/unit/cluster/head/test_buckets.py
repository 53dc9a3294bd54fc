"""Buckets of a job: files that every host gets, and changed ones that are sent back."""

from __future__ import annotations

import re
from pathlib import Path

import fsspec  # pyright: ignore[reportMissingTypeStubs]
import pytest
from fsspec.implementations.memory import (  # pyright: ignore[reportMissingTypeStubs]
    MemoryFile,  # pyright: ignore[reportUnknownVariableType]
)

from slipstream.cluster.head.storage.brought import MEMO, version_there
from slipstream.cluster.head.storage.buckets import SentFiles, bring, send_back
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

    assert send_back(url, folder) == SentFiles(count=0)
    (folder / "second.txt").write_text("changed by the job")
    (folder / "new").mkdir()
    (folder / "new" / "third.txt").write_text("third")
    assert send_back(url, folder) == SentFiles(count=2)
    assert send_back(url, folder) == SentFiles(count=0)
    assert system.cat_file(f"{root}/second.txt") == b"changed by the job"  # pyright: ignore
    assert system.cat_file(f"{root}/new/third.txt") == b"third"  # pyright: ignore
    assert system.cat_file(f"{root}/a/first.txt") == b"first"  # pyright: ignore
    assert len(system.find(root)) == 3  # pyright: ignore


def test_a_folder_that_does_not_exist_yet_is_made_at_the_end(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket/new"
    assert bring(url, tmp_path / "here") == 0
    (tmp_path / "here" / "model.pt").write_text("weights")
    assert send_back(url, tmp_path / "here") == SentFiles(count=1)
    assert (tmp_path / "bucket" / "new" / "model.pt").read_text() == "weights"


def test_an_unknown_kind_of_url_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="bucket nowhere://b cannot be used on this host"):
        bring("nowhere://b", tmp_path)


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """Return a folder that serves as a bucket, with a file."""
    folder = tmp_path / "bucket"
    folder.mkdir()
    (folder / "model.pt").write_text("weights 1")
    return folder


def test_a_changed_file_of_the_same_size_is_brought_again(tmp_path: Path, bucket: Path) -> None:
    assert bring(f"file://{bucket}", tmp_path / "in") == 1
    (bucket / "model.pt").write_text("weights 2")
    assert bring(f"file://{bucket}", tmp_path / "in") == 1
    assert (tmp_path / "in" / "model.pt").read_text() == "weights 2"
    assert send_back(f"file://{bucket}", tmp_path / "in") == SentFiles(count=0)


@pytest.mark.parametrize("is_memo_lost", [False, True])
def test_a_file_that_a_crashed_run_left_does_not_replace_a_newer_one(
    tmp_path: Path, bucket: Path, is_memo_lost: bool
) -> None:
    url, here = f"file://{bucket}", tmp_path / "in"
    bring(url, here)
    (here / "model.pt").write_text("crashed 1")
    (bucket / "model.pt").write_text("newest  2")
    if is_memo_lost:
        (here / MEMO).unlink()
    bring(url, here)
    assert (here / "model.pt").read_text() == "newest  2"
    assert send_back(url, here) == SentFiles(count=1)
    assert (bucket / "model.pt").read_text() == "newest  2"
    (aside,) = bucket.glob("model.pt.conflict-*")
    assert aside.read_text() == "crashed 1"


def test_a_file_that_a_crashed_run_left_stays_while_the_bucket_is_the_same(
    tmp_path: Path, bucket: Path
) -> None:
    url, here = f"file://{bucket}", tmp_path / "in"
    bring(url, here)
    (here / "model.pt").write_text("weights of a crashed run")
    assert bring(url, here) == 0
    assert send_back(url, here) == SentFiles(count=1)
    assert (bucket / "model.pt").read_text() == "weights of a crashed run"


@pytest.mark.parametrize("is_memo_lost", [False, True])
def test_a_file_that_others_changed_during_the_run_stays_in_the_bucket(
    tmp_path: Path, bucket: Path, is_memo_lost: bool
) -> None:
    url, here = f"file://{bucket}", tmp_path / "in"
    bring(url, here)
    (here / "model.pt").write_text("ours")
    (bucket / "model.pt").write_text("theirs")
    if is_memo_lost:
        (here / MEMO).unlink()
    sent = send_back(url, here)
    (name,) = sent.conflicts
    assert name.startswith("model.pt.conflict-")
    assert (bucket / name).read_text() == "ours"
    assert (bucket / "model.pt").read_text() == "theirs"
    assert send_back(url, here) == SentFiles(count=0)
    bring(url, here)
    assert (here / "model.pt").read_text() == "theirs"


def test_files_that_were_brought_without_a_memo_are_the_same(tmp_path: Path, bucket: Path) -> None:
    bring(f"file://{bucket}", tmp_path / "in")
    (tmp_path / "in" / MEMO).unlink()
    bring(f"file://{bucket}", tmp_path / "in")
    assert send_back(f"file://{bucket}", tmp_path / "in") == SentFiles(count=0)


def test_a_file_that_cannot_be_written_does_not_keep_others_from_it(tmp_path: Path) -> None:
    here, bucket = tmp_path / "in", tmp_path / "bucket"
    bring(f"file://{bucket}", here)
    (here / "a").mkdir()
    (here / "a" / "inner").write_text("1")
    (here / "last").write_text("2")
    bucket.mkdir()
    (bucket / "a").write_text("a file where the job has a folder")
    sent = send_back(f"file://{bucket}", here)
    assert sent.count == 1
    assert (bucket / "last").read_text() == "2"
    (failure,) = sent.failures
    assert failure.startswith("a/inner (")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["../../pwned"], "'../../pwned' that cannot be brought: it would be outside of"),
        (["link/pwned"], "'link/pwned' that cannot be brought: it would be outside of"),
        (["a", "a/b"], "'a/b' that cannot be brought: it would be both a file and a folder"),
        ([MEMO], "this name is that of a file of Slipstream"),
    ],
)
def test_names_that_cannot_be_files_of_the_folder_are_refused(
    tmp_path: Path, names: list[str], words: str
) -> None:
    system = fsspec.filesystem("memory")  # pyright: ignore
    root = f"/{tmp_path.name}/bucket"
    for name in ["good", *names]:
        system.store[f"{root}/{name}"] = MemoryFile(system, f"{root}/{name}", b"x")  # pyright: ignore
    here = tmp_path / "runs" / "in"
    here.mkdir(parents=True)
    (here / "link").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match=re.escape(words)):
        bring(f"memory:/{root}", here)
    assert [path.name for path in here.iterdir()] == ["link"]
    assert not list(tmp_path.rglob("pwned"))


def test_the_url_of_a_file_is_refused(tmp_path: Path, bucket: Path) -> None:
    with pytest.raises(ConfigError, match="is a file; name the folder that has it"):
        bring(f"file://{bucket}/model.pt", tmp_path / "in")


def test_versions_are_told_apart_by_the_surest_fact_of_a_store() -> None:
    facts = {"size": 3, "ETag": '"a"', "LastModified": "today", "created": "today"}
    assert version_there(facts) == '3 bytes, ETag "a"'
    assert version_there({"size": 3, "mtime": 1.5, "created": 2.5}) == "3 bytes, mtime 1.5"
    assert version_there({"size": 3, "type": "file"}) == ""
