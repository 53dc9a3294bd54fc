"""Reports of steps: marks in standard error, at most one a second, and only if a head asks."""

from __future__ import annotations

import sys

import pytest

from slipstream.cluster.launch.processes import start_rank
from slipstream.errors import ConfigError
from slipstream.settings import steps_environment
from slipstream.steps import report_step, take_steps

PROGRAM = """
import sys
from slipstream.steps import report_step
sys.stderr.write("text")
for step in range(100):
    report_step(step)
"""


@pytest.mark.parametrize("is_asked", [True, False])
def test_a_program_reports_at_most_once_a_second(is_asked: bool) -> None:
    process = start_rank([sys.executable, "-c", PROGRAM], "/", steps_environment(is_asked=is_asked))
    _, said = process.communicate()
    assert take_steps(said) == (b"text", [0] if is_asked else [])


def test_another_value_of_the_variable_is_refused() -> None:
    with pytest.raises(ConfigError, match="SLIPSTREAM_REPORT_STEPS"):
        report_step(1, {"SLIPSTREAM_REPORT_STEPS": "yes"})


def test_output_without_marks_is_left_as_it_is() -> None:
    assert take_steps(b"\x1b]slipstream;step=12") == (b"\x1b]slipstream;step=12", [])
    assert take_steps(b"\x1b]0;title\x07") == (b"\x1b]0;title\x07", [])
