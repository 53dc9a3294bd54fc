"""A search says where it is without a terminal too: a line every few seconds."""

from __future__ import annotations

import re

import pytest
from cli import in_process

from slipstream.cli.forecast import progress as forecast_progress
from slipstream.cli.forecast.progress import EVERY_SECONDS, LogLines


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


def test_a_line_comes_every_few_seconds() -> None:
    clock, lines = Clock(), list[str]()
    told = LogLines(lines.append, clock)
    told.tell("tracing gpt2", 0, 0)
    assert lines == []
    clock.now += EVERY_SECONDS
    told.tell("tracing gpt2", 0, 0)
    told.tell("1 x T4", 0, 12)
    clock.now += EVERY_SECONDS - 1
    told.tell("2 x T4", 1, 12)
    assert lines == ["5 s: tracing gpt2"]
    clock.now += 1
    told.tell("4 x T4", 2, 12)
    assert lines == ["5 s: tracing gpt2", "10 s: 2 of 12 tried, now 4 x T4"]


@pytest.mark.parametrize(
    ("arguments", "plan"),
    [
        (
            ["--own", "1xT4", "--max-hosts", "2", "--network", "25g"],
            r"\d x 1 x T4, .*, [\d.]+ m?s a step",
        ),
        (
            ["--gpus", "T4", "--max-devices", "2"],
            r"\d x aws g4dn.xlarge, .* a step, \$[\d.]+ /1k steps",
        ),
    ],
)
def test_lines_have_the_best_plan_so_far(
    arguments: list[str], plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(forecast_progress, "EVERY_SECONDS", 0.0)
    ran = in_process("forecast", "resnet18", "--batch", "64", *arguments)
    assert ran.code == 0, ran.stderr
    first, *_, last = ran.stderr.splitlines()
    assert re.fullmatch(r"\d+ s: tracing resnet18.*", first)
    assert "best so far" not in first
    assert re.fullmatch(rf"\d+ s: 1 of 2 tried, now .*; best so far: {plan}", last)
