"""What tuning has found, from one run to the next."""

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from slipstream import _core
from slipstream.comm.profile import Profile, stored_streams
from slipstream.comm.tuner import Knob, Measured

KEPT: dict[str, Any] = {"version": 1, "dimensions": [2], "choice": {"size": 4}, "streams": 3}


@pytest.fixture
def groups(pair: list[_core.Runtime]) -> list[_core.Group]:
    """Return one group of two ranks, as each of them sees it."""
    return [runtime.group("two", [0, 1]) for runtime in pair]


def knobs() -> list[Knob]:
    return [Knob("size", [1, 2, 4, 8], 2), Knob("other", [0, 5], 5)]


def loaded(groups: list[_core.Group], path: Path | None) -> list[tuple[bool, list[int]]]:
    """Return for each rank whether a profile was loaded, and its knobs then."""
    results: list[Any] = [None, None]

    def load(rank: int) -> None:
        own = knobs()
        found = Profile(path, groups[rank]).load(own)
        results[rank] = found, [knob.value for knob in own]

    threads = [Thread(target=load, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_what_is_saved_is_loaded_by_all_ranks(groups: list[_core.Group], tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    saved = knobs()
    saved[0].set(8)
    saved[1].set(0)
    Profile(path, groups[1]).save(saved, Measured(0.5, 0.25), [])
    assert not path.exists()
    Profile(path, groups[0]).save(saved, Measured(0.5, 0.25), ["size became 8"])
    assert [each.name for each in tmp_path.iterdir()] == ["profile.json"]
    assert json.loads(path.read_text()) == {
        "version": 1,
        "dimensions": groups[0].dimensions(),
        "choice": {"size": 8, "other": 0},
        "streams": 0,
        "step_seconds": 0.5,
        "waited_seconds": 0.25,
        "why": ["size became 8"],
    }
    assert loaded(groups, path) == [(True, [8, 0])] * 2


def test_a_knob_that_is_not_kept_stays_as_it_is(groups: list[_core.Group], tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({**KEPT, "dimensions": groups[0].dimensions()}))
    assert loaded(groups, path) == [(True, [4, 5])] * 2


def test_without_a_profile_nothing_is_loaded_or_saved(
    groups: list[_core.Group], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert loaded(groups, None) == [(False, [2, 5])] * 2
    assert loaded(groups, tmp_path / "none") == [(False, [2, 5])] * 2
    Profile(None, groups[0]).save(knobs(), Measured(1, 1), [])
    assert not caplog.records


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda kept: {**kept, "version": 2},
            "is not used, because its version and dimensions are .2, ",
        ),
        (lambda kept: {**kept, "dimensions": [7]}, r"not used, .* are .1, \[7\].; those of this"),
        (lambda kept: {**kept, "choice": {"size": "x"}}, "is no profile: ValueError"),
        (lambda kept: {**kept, "choice": 3}, "is no profile: AttributeError"),
        (lambda kept: [kept], "is no profile: TypeError"),
        (lambda _: {}, "is no profile: KeyError"),
    ],
)
def test_another_profile_is_warned_about_and_not_used(
    groups: list[_core.Group],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[dict[str, Any]], Any],
    message: str,
) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(change({**KEPT, "dimensions": groups[0].dimensions()})))
    with caplog.at_level(logging.WARNING):
        assert loaded(groups, path) == [(False, [2, 5])] * 2
    (record,) = caplog.records
    assert record.getMessage().startswith(f"SLIPSTREAM_PROFILE={path} ")
    assert re.search(message, record.getMessage())


def test_a_profile_that_cannot_be_written_is_warned_about(
    groups: list[_core.Group], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "no folder" / "profile.json"
    Profile(path, groups[0]).save(knobs(), Measured(1, 1), [])
    assert f"SLIPSTREAM_PROFILE={path} cannot be written" in caplog.text


@pytest.mark.parametrize(
    ("text", "streams"),
    [('{"streams": 3}', 3), ('{"streams": "x"}', 0), ("{}", 0), ("[]", 0), ("no json", 0)],
)
def test_streams_are_known_before_there_is_a_group(tmp_path: Path, text: str, streams: int) -> None:
    path = tmp_path / "profile.json"
    assert stored_streams(None) == stored_streams(path) == 0
    path.write_text(text)
    assert stored_streams(path) == streams
