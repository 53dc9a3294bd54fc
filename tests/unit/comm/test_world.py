"""A world of one, in this process; and what there is without a world."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from slipstream import comm
from slipstream.comm.active import open_engines
from slipstream.comm.config import interface_filter_text
from slipstream.errors import ConfigError, UsageError
from slipstream.settings import Settings


@pytest.fixture
def alone() -> Iterator[comm.Group]:
    """Yield the world of this process."""
    yield comm.init()
    comm.shutdown()


def test_there_is_no_world_before_init() -> None:
    assert not comm.is_initialized()
    for call in (comm.rank, comm.local_size, comm.world, comm.barrier):
        with pytest.raises(UsageError, match=r"call slipstream\.comm\.init\(\) first"):
            call()
    comm.shutdown()


def test_init_again_returns_the_same_world(alone: comm.Group) -> None:
    assert comm.init() is alone is comm.world()
    assert (comm.rank(), comm.size(), comm.local_rank(), comm.local_size()) == (0, 1, 0, 1)


def test_shortcuts_are_those_of_the_world(alone: comm.Group) -> None:
    array = np.arange(3)
    assert comm.allreduce(array) is array
    assert comm.allreduce.__doc__ == comm.Group.allreduce.__doc__
    handle = comm.all_gather(array, async_op=True)
    assert isinstance(handle, comm.Handle)
    assert np.array_equal(handle.wait(), array[None])
    assert handle.done()


def test_a_group_is_named_after_its_ranks(alone: comm.Group) -> None:
    assert comm.group([0]).name == "ranks 0"
    assert comm.group([0], "mine").name == "mine"
    for ranks in ([0, 0], [1], [-1], []):
        with pytest.raises(UsageError, match="ranks are"):
            comm.group(ranks)


def test_counters_count(alone: comm.Group) -> None:
    before = comm.stats().operations
    comm.barrier()
    comm.allreduce(np.ones(3))
    assert comm.stats().operations == before + 2
    comm.shutdown()
    assert comm.stats() == comm.stats()
    assert comm.stats().operations == 0


def test_times_are_the_engines_nanoseconds_in_seconds(alone: comm.Group) -> None:
    comm.allreduce(np.ones(3))
    (engine,) = open_engines()
    counted, stats = engine.runtime.stats(), comm.stats()
    assert 0 < stats.last_submit_time == counted.last_submit_nanoseconds / 1e9
    assert 0 < stats.last_complete_time == counted.last_complete_nanoseconds / 1e9
    assert stats.busy_seconds == counted.busy_nanoseconds / 1e9
    assert stats.blocked_seconds == counted.blocked_nanoseconds / 1e9


def test_a_timeline_can_be_recorded_in_part(alone: comm.Group, tmp_path: Path) -> None:
    comm.allreduce(np.ones(3), name="before")
    comm.timeline.start(tmp_path / "folder" / "rank{rank}.json")
    with pytest.raises(UsageError, match="is being recorded"):
        comm.timeline.start(tmp_path / "other.json")
    comm.allreduce(np.ones(3), name="within")
    file = comm.timeline.stop()
    comm.allreduce(np.ones(3), name="after")
    assert file == tmp_path / "folder" / "rank0.json"
    assert comm.timeline.stop() is None
    bars = [each for each in json.loads(file.read_text())["traceEvents"] if each["ph"] == "X"]
    assert [bar["name"] for bar in bars] == ["within"]
    assert bars[0]["args"]["bytes"] == 24


def test_a_timeline_needs_an_engine() -> None:
    with pytest.raises(UsageError, match="after init"):
        comm.timeline.start("nowhere.json")
    assert comm.timeline.stop() is None


def test_a_timeline_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SLIPSTREAM_TIMELINE", str(tmp_path / "file" / "trace.json"))
    with pytest.raises(ConfigError, match="SLIPSTREAM_TIMELINE names"):
        comm.init()
    assert not comm.is_initialized()


@pytest.mark.parametrize("text", ["eth,ib", "=eth0", "^docker,lo", "^=lo"])
def test_the_filter_of_interfaces_reaches_the_engine_as_it_was_written(text: str) -> None:
    settings = Settings.from_environment({"SLIPSTREAM_IFACE": text})
    assert interface_filter_text(settings.iface) == text


def test_importing_it_imports_no_framework() -> None:
    code = "import sys, slipstream.comm; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert "numpy" in modules
    assert not modules & {"torch", "tensorflow", "jax", "mxnet", "pydantic", "rich"}
