"""The engines of this process that are open: their log, their timelines, their counters."""

import json
import logging
import os
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstream import _core, comm
from slipstream.comm.active import OpenEngine, open_engines
from slipstream.errors import ConfigError


@pytest.fixture
def engines(pair: list[_core.Runtime]) -> Iterator[list[OpenEngine]]:
    """Yield the engines of two ranks, which are open in this process."""
    opened = [OpenEngine(runtime, rank) for rank, runtime in enumerate(pair)]
    yield opened
    for engine in opened:
        engine.close()


def meet(engines: list[OpenEngine], name: str = "two") -> None:
    """Let both ranks go through a barrier of a new group."""
    groups = [comm.Group(engine.runtime.group(name, [0, 1])) for engine in engines]
    for handle in [group.barrier(async_op=True) for group in groups]:
        handle.wait(10.0)


def names(path: Path) -> list[str]:
    """Return the processes of a timeline's bars, in order."""
    seen = json.loads(path.read_text())["traceEvents"]
    return [each["args"]["name"] for each in seen if each["name"] == "process_name"]


def test_engines_are_open_until_they_are_closed(engines: list[OpenEngine]) -> None:
    assert open_engines() == engines
    assert engines[0].is_mine()
    engines[0].close()
    engines[0].close()
    assert open_engines() == engines[1:]


def test_a_forked_child_has_no_engine(engines: list[OpenEngine]) -> None:
    readable, writable = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # newer Pythons warn of threads, of which the child has none
        child = os.fork()
    if child == 0:
        engines[0].close()
        os.write(writable, str((len(open_engines()), engines[0].is_mine())).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(readable, 100) == b"(0, False)"
    os.close(readable)
    os.close(writable)


def test_counters_are_added_up_and_moments_are_the_latest(engines: list[OpenEngine]) -> None:
    meet(engines)
    each = [engine.runtime.stats() for engine in engines]
    seen = comm.stats()
    assert seen.operations == each[0].operations + each[1].operations == 2
    assert seen.failed_operations == 0
    assert seen.network_bytes_sent == each[0].network_bytes_sent + each[1].network_bytes_sent > 0
    assert seen.network_bytes_received == sum(one.network_bytes_received for one in each) > 0
    assert (seen.shm_bytes_sent, seen.shm_bytes_received) == (0, 0)
    assert (seen.segments_sent_again, seen.streams_lost, seen.stalls_reported) == (0, 0, 0)
    assert seen.streams == max(one.streams for one in each)
    assert seen.busy_seconds == sum(one.busy_nanoseconds for one in each) / 1e9 > 0
    assert seen.last_submit_time == max(one.last_submit_nanoseconds for one in each) / 1e9
    assert seen.last_complete_time == max(one.last_complete_nanoseconds for one in each) / 1e9


def test_all_engines_record_to_one_timeline(engines: list[OpenEngine], tmp_path: Path) -> None:
    assert comm.timeline.path() is None
    comm.timeline.start(tmp_path / "trace{rank}.json")
    assert comm.timeline.path() == tmp_path / "trace0.json"
    meet(engines)
    comm.timeline.add(99, "mine", [comm.timeline.Bar("row", "bar", 1, 2)])
    assert comm.timeline.stop() == tmp_path / "trace0.json"
    assert comm.timeline.path() is None
    comm.timeline.add(99, "mine", [comm.timeline.Bar("row", "late", 1, 2)])
    text = (tmp_path / "trace0.json").read_text()
    assert sorted(names(tmp_path / "trace0.json")) == ["mine", "rank 0", "rank 1"]
    assert (text.count('"bar"'), text.count('"late"')) == (1, 0)


@pytest.mark.parametrize(("file", "written"), [("one.json", ["one.json"]), ("{rank}", ["0", "1"])])
def test_each_rank_records_where_the_name_has_its_rank(
    pair: list[_core.Runtime], tmp_path: Path, file: str, written: list[str]
) -> None:
    opened = [OpenEngine(each, rank, tmp_path / file) for rank, each in enumerate(pair)]
    meet(opened)
    for engine in opened:
        engine.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == written
    assert [names(tmp_path / each) for each in written] == [
        [f"rank {rank}"] for rank in range(len(written))
    ]


def test_engines_in_turn_share_the_file_that_a_setting_names(
    pair: list[_core.Runtime], tmp_path: Path
) -> None:
    path = tmp_path / "shared.json"
    opened = [OpenEngine(each, 0, path) for each in pair]
    assert opened[0].trace is opened[1].trace
    for engine in opened:
        engine.close()


def test_a_timeline_that_cannot_be_made_is_no_engine(
    pair: list[_core.Runtime], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"SLIPSTREAM_TIMELINE names '.*trace', which cannot"):
        OpenEngine(pair[0], 0, tmp_path / "file" / "trace")
    assert open_engines() == []


def test_a_timeline_that_is_lost_ends_with_a_warning_and_the_job_goes_on(
    engines: list[OpenEngine], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "trace.json"
    comm.timeline.start(path)
    path.unlink()
    with caplog.at_level(logging.WARNING, "slipstream.engine"):
        comm.timeline.add(9, "mine", [comm.timeline.Bar("row", "bar", 1, 2)])
    assert "the timeline ends here, because writing it failed" in caplog.text
    meet(engines)
    assert comm.stats().operations == 2


class Heard(logging.Handler):
    """Keeps what is logged, and tells who waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.some = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.some.set()


def test_what_an_engine_says_is_logged_with_its_rank() -> None:
    runtime = _core.Runtime(
        rank=0, world_size=1, key=b"k" * 32, config=_core.Config(stall_after=0.01)
    )
    runtime.connect([runtime.address()], 10.0)
    engine, heard = OpenEngine(runtime, 5), Heard()
    log = logging.getLogger("slipstream.engine")
    log.addHandler(heard)
    group = runtime.group("alone", [0])
    memory = bytearray(8)
    comm.Group(group).recv(memory, name="late", async_op=True)
    assert heard.some.wait(30.0)
    assert comm.stats().stalls_reported == 1
    engine.close()
    log.removeHandler(heard)
    (record,) = heard.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("rank 5: ")
    assert "late" in record.getMessage()
