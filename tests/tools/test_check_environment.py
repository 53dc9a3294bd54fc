"""Where environment variables may be named and read."""

from pathlib import Path

import check_environment
import pytest


def problems_with(root: Path, path: str, text: str) -> list[str]:
    """What is reported for a tree with one file."""
    source = root / path
    source.parent.mkdir(parents=True)
    source.write_text(text)
    return check_environment.problems(root)


@pytest.mark.parametrize(
    "line",
    [
        'os.environ["HOME"]',
        'os.environ.get("HOME")',
        'os.getenv("HOME")',
        'environ["HOME"]',
        'print("set SLIPSTREAM_PORT")',
    ],
)
def test_one_variable_outside_settings_is_reported(tmp_path: Path, line: str) -> None:
    assert len(problems_with(tmp_path, "src/slipstream/cluster/run.py", line)) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/slipstream/settings/variables.py", 'os.environ["SLIPSTREAM_PORT"]'),
        ("src/slipstream/cluster/run.py", "child(env={**os.environ})"),
        ("src/slipstream/cluster/run.py", '"""SLIPSTREAM_PORT is read at the edge."""'),
        ("core/base/log.cc", "// not getenv(), values come from Python"),
    ],
)
def test_what_the_rule_allows_passes(tmp_path: Path, path: str, text: str) -> None:
    assert problems_with(tmp_path, path, text) == []


def test_an_engine_that_reads_the_environment_is_reported(tmp_path: Path) -> None:
    assert len(problems_with(tmp_path, "core/base/log.cc", 'getenv("X");')) == 1
