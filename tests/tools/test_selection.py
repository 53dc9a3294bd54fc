"""`--share`: four successive shares of a sweep are all of it, corners are in each of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

SUITE = """
import pytest

@pytest.mark.sweep
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 64])
@pytest.mark.parametrize("kind", ["a", pytest.param("m", marks=pytest.mark.corner), "n", "z"])
def test_grid(size, kind): pass

@pytest.mark.slow("training")
@pytest.mark.parametrize("model", [
    "large",
    pytest.param("huge", marks=pytest.mark.slow("training", represents=False)),
    "small",
    "tiny",
])
def test_training(model): pass

@pytest.mark.slow("training", represents=False)
def test_whole_training(): pass

def test_usual(): pass
"""
PLUGINS = Path(__file__).parents[1] / "plugins"
MARKERS = f"""
[pytest]
pythonpath = {PLUGINS} {PLUGINS.parents[1] / "tools"}
addopts = -p selection
markers =
    sweep: a grid
    corner: always
    slow: long
"""


@pytest.fixture
def run(pytester: pytest.Pytester):
    """Run the suite with these arguments; return the names of the cases that ran."""
    pytester.makeini(MARKERS)
    pytester.makepyfile(test_suite=SUITE)

    def run(*arguments: str) -> set[str]:
        result = pytester.runpytest_inprocess("-v", *arguments)
        assert result.ret == 0, result.stdout.str()
        lines = (line for line in result.outlines if "PASSED" in line)
        return {word.split("::")[1] for line in lines for word in line.split() if "::" in word}

    return run


def grid(names: set[str]) -> set[str]:
    return {name for name in names if name.startswith("test_grid")}


GRID = "@pytest.mark.sweep\n@pytest.mark.parametrize({})\ndef test_it(a): pass"


def test_four_successive_shares_are_the_whole_sweep_and_each_has_its_corners(run) -> None:
    shares = [grid(run("--share", str(number))) for number in range(4)]
    everything = grid(run())
    assert len(everything) == 24
    assert set.union(*shares) == everything
    ends = {f"test_grid[{kind}-{size}]" for kind in "az" for size in (0, 64)}
    marked = {f"test_grid[m-{size}]" for size in (0, 1, 7, 8, 9, 64)}
    for share in shares:
        assert ends | marked <= share
        assert len(share) < len(everything)


def test_one_slow_test_of_each_kind_runs_and_another_in_the_next_share(run) -> None:
    shares = [run("--share", str(number)) for number in range(3)]
    slow = [{name for name in share if "training" in name} for share in shares]
    assert [len(names) for names in slow] == [1, 1, 1]
    assert set.union(*slow) == {f"test_training[{model}]" for model in ("large", "small", "tiny")}
    assert all("test_usual" in share for share in shares)
    assert {"test_whole_training", "test_training[huge]"} <= run()


@pytest.mark.slow("run_tests on a small tree")
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one", "two"])
def test_what_is_left_out_is_said_and_written(pytester, run, workers: tuple[str, ...]) -> None:
    run("--share", "0", "--left-out", "out/left.json", *workers)
    left = json.loads((pytester.path / "out" / "left.json").read_text())
    assert len(left["slow"]) == 4
    assert len(left["sweep"]) + len(grid(run("--share", "0"))) == 24
    result = pytester.runpytest_subprocess("--share", "0", *workers)
    result.stdout.fnmatch_lines([f"left out: {len(left['sweep'])} cases of sweeps and 4 slow*"])


def test_what_is_named_runs_in_every_share(run) -> None:
    names = {f"test_grid[{kind}-{size}]" for kind in "mn" for size in (7, 8, 9)}
    assert run("--share", "0", *(f"test_suite.py::{name}" for name in names)) == names
    assert run("--share", "1", "test_suite.py::test_whole_training") == {"test_whole_training"}
    assert len(run("--share", "1", "test_suite.py::test_grid")) == 24


def test_what_is_skipped_stands_for_no_other(pytester, run) -> None:
    test = "@pytest.mark.slow('a')\ndef test_{}(): pass\n"
    skipped = ["skip", "skip(reason='b')", "skipif(True, reason='b')"]
    tests = [f"@pytest.mark.{mark}\n{test.format(place)}" for place, mark in enumerate(skipped)]
    tests.append("@pytest.mark.skipif(False, reason='b')\n" + test.format("that_runs"))
    pytester.makepyfile(test_skipped="import pytest\n" + "".join(tests))
    for number in range(4):
        assert run("--share", str(number), "test_skipped.py") == {"test_that_runs"}


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("@pytest.mark.slow\ndef test_it(): pass", "slow needs one argument, the kind"),
        ("@pytest.mark.sweep\ndef test_it(): pass", "is marked sweep and has no parameters"),
        (GRID.format("'a', (a for a in '12')"), "the parameters of a sweep are names and a list"),
        (GRID.format("'a', []"), "the parameters of a sweep are names and a list"),
        (GRID.format("argnames='a', argvalues=[1]"), "the parameters of a sweep are"),
    ],
)
def test_a_marker_that_says_too_little_is_refused(pytester, run, test: str, message: str) -> None:
    pytester.makepyfile(test_wrong=f"import pytest\n{test}\n")
    result = pytester.runpytest_inprocess("--share", "0")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{message}*"])


def test_the_project_knows_the_options_where_the_file_of_the_last_run_is_still_there(
    tmp_path: Path,
) -> None:
    file = tmp_path / "left.json"
    file.touch()
    options = ("--share=0", f"--left-out={file}", "-o", "testpaths=tests/unit/settings")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *options],
        cwd=PLUGINS.parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_what_is_skipped_here_stands_for_no_other(pytester, run) -> None:
    pytester.makeconftest(
        """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if "large" in item.name:
            item.add_marker(pytest.mark.skip)
"""
    )
    ran = [run("--share", str(number)) for number in range(3)]
    slow = [{name for name in share if "training" in name} for share in ran]
    assert slow == [{"test_training[small]"}, {"test_training[tiny]"}, {"test_training[small]"}]


def test_a_part_leaves_out_what_the_whole_does(run) -> None:
    assert run("--share", "1", "-k", "training") <= run("--share", "1")
