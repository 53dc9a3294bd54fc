"""Jobs that a Python program runs on this host."""

import logging
from pathlib import Path

import pytest

from slipstream.cluster import JobSpec, RunSession, run
from slipstream.errors import ConfigError

pytestmark = pytest.mark.multiprocess


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the records of this test in a folder of its own."""
    monkeypatch.setenv("SLIPSTREAM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def job(command: str, **fields: object) -> JobSpec:
    return JobSpec.model_validate({"name": "here", "command": command, "processes": 2, **fields})


def test_the_exit_code_and_the_lines_come_back(
    tmp_path: Path, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    program = "sh -c 'echo rank $RANK of $WORLD_SIZE; exit 7'"
    assert run(job(program, retry={"max_restarts": 0}), base=tmp_path) == 7
    assert "rank 1: rank 1 of 2" in caplog.text
    record = RunSession(home).log.find("here")
    assert (record.state, record.exit_code) == ("failed", 7)
    assert record.facts["code"]["folder"] == str(tmp_path)
    assert not (home / "keys" / "here-1").exists()


def test_a_secret_reaches_the_ranks_and_no_record(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cr3t-value")
    program = "sh -c 'printf %s \"$TOKEN\" > out$RANK'"
    assert run(job(program, secrets=["TOKEN"]), base=tmp_path) == 0
    assert (tmp_path / "out1").read_text() == "s3cr3t-value"
    for path in home.rglob("*"):
        assert not path.is_file() or b"s3cr3t-value" not in path.read_bytes(), path


def test_a_secret_that_is_not_set_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="NOT_THERE"):
        run(job("true", secrets=["NOT_THERE"]), base=tmp_path)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"hosts": 2}, "hosts is 2, but the engine is local"),
        ({"software": {"packages": ["x"]}}, "software.packages is set"),
        ({"resources": {"cpus": 100000}}, "lacks: 100000 processors"),
        ({"resources": {"gpu_memory": "1GiB"}}, "a GPU of which a share is used"),
    ],
)
def test_what_this_host_cannot_do_is_refused(
    tmp_path: Path, home: Path, fields: dict[str, object], words: str
) -> None:
    with pytest.raises(Exception, match=words):
        run(job("true", **fields), base=tmp_path)
    assert RunSession(home).log.find("here").state == "failed"
