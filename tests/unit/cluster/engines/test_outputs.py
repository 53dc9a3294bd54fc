"""Outputs become an archive on a host, and files on this machine."""

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstream.cluster.engines.outputs import ResumedStream, unmatched, unpack_outputs
from slipstream.cluster.head.outputs import archive_chunks
from slipstream.errors import ConfigError, PeerError


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """Return a folder of code with outputs of several kinds."""
    code = tmp_path / "code"
    (code / "results/empty").mkdir(parents=True)
    (code / "results/model.bin").write_bytes(os.urandom(3_000_000))
    (code / "results/model.bin").chmod(0o640)
    (code / "results/latest").symlink_to("model.bin")
    (code / ("long" * 40)).write_text("x")
    (code / "train.py").write_text("")
    os.mkfifo(code / "results/pipe")
    return code


PATTERNS = ("results", "long*", "missing")


def whole(code: Path, skip: int = 0) -> bytes:
    """Return the archive of the outputs."""
    return b"".join(archive_chunks(code, PATTERNS, skip))


def test_an_archive_goes_on_at_any_byte(code: Path) -> None:
    archive = whole(code)
    for skip in (0, 1, 511, 512, 513, 5000, 2_999_000, len(archive) - 1, len(archive)):
        assert whole(code, skip) == archive[skip:], skip


def test_the_files_come_back_over_connections_that_end(code: Path, tmp_path: Path) -> None:
    def shaky(skip: int) -> Iterator[bytes]:
        yield whole(code, skip)[:700_001]
        if len(whole(code)) - skip > 700_001:
            raise PeerError("lost")

    target = tmp_path / "back"
    (target / "results").mkdir(parents=True)
    (target / "results/latest").write_text("an earlier one")
    unpack_outputs(ResumedStream(shaky), target)
    model = target / "results/model.bin"
    assert model.read_bytes() == (code / "results/model.bin").read_bytes()
    assert model.stat().st_mode & 0o777 == 0o640
    assert (target / "results/latest").readlink() == Path("model.bin")
    assert sorted(path.name for path in target.rglob("*")) == sorted(
        ["results", "empty", "model.bin", "latest", "long" * 40]
    )


def test_an_archive_that_ends_early_or_never_comes_is_named(code: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not whole"):
        unpack_outputs(ResumedStream(lambda skip: iter([whole(code, skip)[:9000]])), tmp_path)
    assert not (tmp_path / "results/model.bin").exists()

    def lost(_: int) -> Iterator[bytes]:
        raise PeerError("lost for good")
        yield b""

    with pytest.raises(PeerError, match="for good"):
        unpack_outputs(ResumedStream(lost, pauses=(0.0, 0.0)), tmp_path)


def archive_of(name: str, link: str = "") -> ResumedStream:
    """Return an archive with one entry."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        if link:
            entry.type, entry.linkname = tarfile.SYMTYPE, link
        archive.addfile(entry)
    return ResumedStream(lambda skip: iter([packed.getvalue()[skip:]]))


@pytest.mark.parametrize(
    ("name", "link"), [("../x", ""), ("/x", ""), ("x", "/etc/passwd"), ("a/x", "../../y")]
)
def test_nothing_leads_out_of_the_folder(tmp_path: Path, name: str, link: str) -> None:
    with pytest.raises(ConfigError, match="out"):
        unpack_outputs(archive_of(name, link), tmp_path / "target")
    assert not list((tmp_path / "target").rglob("x"))
    assert not (tmp_path / "x").exists()


def test_a_disk_that_refuses_is_named(code: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target/results").write_text("a file where a folder is needed")
    with pytest.raises(ConfigError, match="cannot be written"):
        unpack_outputs(ResumedStream(lambda skip: iter([whole(code, skip)])), tmp_path / "target")


def test_patterns_that_match_nothing_are_told() -> None:
    names = ["results", "results/deep", "results/deep/a.pt", "my file"]
    patterns = ["results/", "**/*.pt", "my*", "*.pt", "result", "results/?"]
    assert unmatched(patterns, names) == ["*.pt", "result", "results/?"]
