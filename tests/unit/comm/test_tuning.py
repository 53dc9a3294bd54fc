"""Two ranks that tune: who measures what when, and what all of them switch to."""

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from slipstream import _core
from slipstream.comm import tuning as tuning_module
from slipstream.comm.active import OpenEngine
from slipstream.comm.tuner import Knob
from slipstream.comm.tuning import FIRST_STEPS, WINDOW, Tuning, segment_sizes
from slipstream.settings import Settings


class Clock:
    """A clock that stands still until a test moves it, and what was waited meanwhile."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.blocked_seconds = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the time that the tuning sees."""
    made = Clock()
    monkeypatch.setattr(tuning_module, "time", made)
    monkeypatch.setattr(tuning_module, "stats", lambda: made)
    return made


@pytest.fixture
def groups(pair: list[_core.Runtime]) -> Iterator[list[_core.Group]]:
    """Yield one group of two ranks, as each of them sees it, with the engines open."""
    opened = [OpenEngine(runtime, rank) for rank, runtime in enumerate(pair)]
    yield [runtime.group("two", [0, 1]) for runtime in pair]
    for engine in opened:
        engine.close()


def train(
    tunings: list[Tuning],
    clock: Clock,
    steps: int,
    seconds: Callable[[], float],
    waits: float = 0.5,
) -> None:
    """Make some steps that take the same time on all ranks."""
    for _ in range(steps):
        clock.now += seconds()
        clock.blocked_seconds += waits * seconds()
        for tuning in tunings:
            tuning.step()


def test_the_first_choice_is_what_the_engine_does_by_itself(groups: list[_core.Group]) -> None:
    tuning = Tuning(groups[0], [Knob("bucket", [1, 2], 2)], Settings())
    assert tuning.choice == {
        "bucket": 2,
        "segment bytes": 131072,
        "recursive doubling up to bytes": 32768,
        "direct exchange up to bytes": 8192,
    }
    assert (list(tuning.news), tuning.is_settled) == ([], False)


@pytest.mark.parametrize(
    ("segment", "eager", "sizes"),
    [
        (131072, 8192, [32768, 65536, 131072]),
        (65536, 8192, [16384, 32768, 65536]),
        (65472, 8192, [32736, 65472][1:]),  # 32736 is no multiple of 64
        (131072, 65536, [65536, 131072]),
        (131072, 65600, [131072]),
        (16384, 4096, [16384]),
        (8192, 4096, []),
    ],
)
def test_segments_are_halved_twice_where_small_messages_and_the_engine_allow(
    segment: int, eager: int, sizes: list[int]
) -> None:
    assert segment_sizes(Settings(segment_bytes=segment, eager_bytes=eager)) == sizes


def test_a_window_is_measured_after_the_first_steps_and_the_one_that_follows_is_not(
    groups: list[_core.Group], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    knobs = [Knob("bucket", [1, 2], 1) for _ in groups]
    tunings = [Tuning(group, [knob], Settings()) for group, knob in zip(groups, knobs, strict=True)]
    caplog.set_level(logging.INFO)
    # First steps, a window, what all agree on, and a second window that is steady.
    steady = FIRST_STEPS + WINDOW + 1 + (1 + WINDOW)
    train(tunings, clock, steady, lambda: 1.0)
    assert [knob.value for knob in knobs] == [1, 1]
    train(tunings, clock, 1, lambda: 1.0)
    assert [knob.value for knob in knobs] == [2, 2]
    train(tunings, clock, WINDOW + 2, lambda: 0.5)
    news = "bucket 1 becomes 2: a step takes 0.5 s instead of 1"
    assert [list(each.news) for each in tunings] == [[news], [news]]
    assert caplog.messages == [f"tuning: {news}"] * 2


def test_steps_that_do_not_wait_settle_at_once_and_are_kept(
    groups: list[_core.Group], clock: Clock, tmp_path: Path
) -> None:
    path = tmp_path / "profile.json"
    path.write_text("{}")
    made: list[Tuning] = []
    other = Thread(target=lambda: made.append(Tuning(groups[1], (), Settings(profile=path))))
    other.start()
    tunings = [Tuning(groups[0], (), Settings(profile=path))]
    other.join()
    tunings += made
    train(tunings, clock, FIRST_STEPS + WINDOW, lambda: 2.0, waits=0.01)
    assert not tunings[0].is_settled
    train(tunings, clock, 1, lambda: 2.0, waits=0.01)
    assert [each.is_settled for each in tunings] == [True, True]
    kept = json.loads(path.read_text())
    assert kept["choice"] == tunings[0].choice
    assert (kept["step_seconds"], kept["why"]) == (pytest.approx(2.0), [])
    assert kept["waited_seconds"] == pytest.approx(0.02)


@pytest.mark.parametrize("settings", [Settings(deterministic=True), Settings(algorithm="ring")])
def test_who_asks_for_one_way_gets_no_other(
    groups: list[_core.Group], clock: Clock, settings: Settings
) -> None:
    tuning = Tuning(groups[0], [Knob("bucket", [1, 2], 1)], settings)
    train([tuning], clock, 100, lambda: 1.0)  # alone: it would block on the other rank
    assert tuning.choice["bucket"] == 1
    assert not tuning.is_settled


def test_one_rank_tunes_nothing(groups: list[_core.Group], pair: list[_core.Runtime]) -> None:
    tuning = Tuning(pair[0].group("one", [0]), (), Settings(profile=Path("nowhere")))
    for _ in range(50):
        tuning.step()
    assert (list(tuning.news), tuning.is_settled) == ([], False)
