"""The records of runs and resources: they outlive the process, and other processes see them."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from slipstream.cluster.records import ResourceLedger, RunLog, Store
from slipstream.errors import ConfigError, UsageError


def begin(log: RunLog, name: str = "train") -> int:
    spec = {"command": ["a"]}
    return log.begin(name=name, engine="ssh", spec=spec, deadline_at=None, facts={}).number


def test_a_run_goes_on_under_its_name_until_it_has_ended(tmp_path: Path) -> None:
    log = RunLog(Store(tmp_path))
    number = begin(log)
    log.set_state(number, "running")
    going_on = log.going_on("train", engine="ssh", spec={"command": ["a"]})
    assert going_on is not None
    assert (going_on.number, going_on.state) == (number, "running")
    assert begin(log) == number
    log.set_state(number, "succeeded", exit_code=0)
    assert log.going_on("train", engine="ssh", spec={"command": ["a"]}) is None
    assert begin(log) == number + 1
    assert log.find("train").number == number + 1
    assert log.find(f"#{number}").exit_code == 0


@pytest.mark.parametrize(("engine", "command"), [("ssh", "b"), ("local", "a")])
def test_another_job_under_the_name_of_one_that_goes_on_is_refused(
    tmp_path: Path, engine: str, command: str
) -> None:
    log = RunLog(Store(tmp_path))
    begin(log)
    with pytest.raises(UsageError, match="slipstream cluster down train"):
        log.going_on("train", engine=engine, spec={"command": [command]})


def test_the_last_state_of_a_run_stays(tmp_path: Path) -> None:
    log = RunLog(Store(tmp_path))
    number = begin(log)
    log.set_state(number, "failed", "no host", 1)
    log.set_state(number, "running")
    record = log.find("train")
    assert (record.state, record.message, record.exit_code) == ("failed", "no host", 1)
    assert [event.text for event in log.events(number)] == ["failed: no host"]


def test_an_unknown_run_is_named_with_those_that_are_known(tmp_path: Path) -> None:
    log = RunLog(Store(tmp_path))
    begin(log)
    with pytest.raises(UsageError, match="there is no run 'trian'; known: train"):
        log.find("trian")


def test_threads_and_processes_write_at_the_same_time(tmp_path: Path) -> None:
    log = RunLog(Store(tmp_path))
    number = begin(log)
    program = (
        "import sys; from pathlib import Path; from slipstream.cluster.records import *\n"
        "log = RunLog(Store(Path(sys.argv[1])))\n"
        "for i in range(30): log.note(1, 'note', sys.argv[2] + str(i))"
    )
    argv = [sys.executable, "-c", program, str(tmp_path)]
    others = [subprocess.Popen([*argv, name]) for name in "pq"]

    def write() -> None:
        for index in range(30):
            log.note(number, "note", f"t{index}")

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [other.wait(60) for other in others] == [0, 0]
    texts = [event.text for event in log.events(number)]
    assert sorted(texts) == sorted(
        [f"{name}{index}" for name in ("p", "q", "t", "t") for index in range(30)]
    )


def test_the_ledger_has_a_resource_before_and_after_it_exists(tmp_path: Path) -> None:
    ledger = ResourceLedger(Store(tmp_path))
    fields = {"token": "t1", "cluster": "c", "place": ("aws", "eu"), "kind": "machine"}
    first = ledger.intend(**fields, name="task0.c", price_per_hour=3.6)
    assert (first.state, first.external_id) == ("intended", "")
    assert ledger.intend(**fields, name="task0.c") == first
    ledger.created("t1", "i-7", {"type": "p4d"})
    (created,) = ResourceLedger(Store(tmp_path)).resources("c")
    assert (created.state, created.external_id, created.facts) == (
        "created",
        "i-7",
        {"type": "p4d"},
    )
    assert created.created_at is not None
    assert created.cost(created.created_at + 1000) == pytest.approx(1.0)
    ledger.released("t1")
    assert ledger.resources() == []
    (released,) = ledger.resources(all_states=True)
    assert released.state == "released"


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster.db").write_text("x" * 4096)
    with pytest.raises(ConfigError, match=r"cluster\.db cannot be used"):
        Store(tmp_path)


def test_only_the_owner_can_read_the_records(tmp_path: Path) -> None:
    Store(tmp_path / "home")
    assert (tmp_path / "home").stat().st_mode & 0o077 == 0


def test_two_first_clients_begin_one_run(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from slipstream.cluster.records import *\n"
        "log = RunLog(Store(Path(sys.argv[1])))\n"
        "print(log.begin(name='a', engine='ssh', spec={}, deadline_at=None, facts={}).number)"
    )
    argv = [sys.executable, "-c", program, str(tmp_path / "home")]
    clients = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [client.communicate(timeout=60)[0] for client in clients] == ["1\n"] * 4
