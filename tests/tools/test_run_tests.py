"""What run_tests.py returns and reports, on small trees of tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
PLUGINS = Path(__file__).parents[1] / "plugins"
SETTINGS = f"""
[pytest]
pythonpath = {PLUGINS} {TOOLS}
addopts = -p selection
testpaths = tests
markers =
    alone: nothing beside it
    sweep: a grid
    slow: long
    other: another
"""
ALONE = "import pytest\n@pytest.mark.alone\n"
PASSES = "def test_passes(): pass\n"
FAILS = "def test_fails(): assert 0\n"
# Touches a file when a failure has reached the process that says what failed.
REPORTS = """
import pathlib, pytest

class Reports:
    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report):
        if report.failed:
            pathlib.Path("reported").touch()

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reports())
"""


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    """Return a folder of tests, one of which passes with others and one alone."""
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_beside.py").write_text(PASSES)
    (folder / "test_alone.py").write_text(ALONE + PASSES)
    return folder


def run(tests: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOLS / "run_tests.py"), *arguments],
        cwd=tests.parent,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow("run_tests on a small tree")
def test_all_that_pass_are_reported(tests: Path) -> None:
    ran = run(tests)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "share 0, the number of this commit" in ran.stdout
    rows = [line.split()[:2] for line in ran.stdout.splitlines() if "tests/" in line]
    assert sorted(rows) == [["tests/test_alone.py", "1"], ["tests/test_beside.py", "1"]]
    assert "failed" not in ran.stdout


@pytest.mark.slow("failure that run_tests sees")
@pytest.mark.parametrize(
    "test",
    [
        FAILS,
        ALONE + FAILS,
        "import missing\n",
        f"{ALONE}def test_ends(): import os; os._exit(0)\n{FAILS}",
        f"{ALONE}def test_ends(): pytest.exit('x', returncode=0)\n{FAILS}",
        f"{ALONE}def test_late(): import atexit, os; atexit.register(os._exit, 0)\n{ALONE}{FAILS}",
    ],
    ids=["beside", "alone", "no module", "process ends", "pytest ends", "pytest ends with 0"],
)
def test_a_test_that_fails_in_one_part_is_seen(tests: Path, test: str) -> None:
    (tests / "test_other.py").write_text(test)
    assert run(tests, "--share", "0").returncode not in (0, 5)


@pytest.mark.slow("run_tests on a small tree")
def test_what_failed_is_said_last(tests: Path) -> None:
    (tests / "test_other.py").write_text(
        f"class TestIt:\n    {FAILS.replace('fails', 'a').replace('()', '(self)')}"
        f"import pytest\n@pytest.mark.parametrize('a', ['b c'])\ndef test_b(a): assert 0\n"
        f"{ALONE}{FAILS}"
    )
    ran = run(tests)
    assert ran.stdout.splitlines()[-4:] == [
        "3 failed:",
        "  tests/test_other.py::TestIt::test_a",
        "  'tests/test_other.py::test_b[b c]'",
        "  tests/test_other.py::test_fails",
    ]


@pytest.mark.slow("run_tests on a small tree")
def test_the_first_failure_ends_both_parts_where_that_is_asked_for(tests: Path) -> None:
    (tests / "test_other.py").write_text(FAILS)
    ran = run(tests, "-x")
    assert ran.returncode == 2, "which is pytest's code for that"
    assert "test_alone" not in ran.stdout


@pytest.mark.slow("run_tests on a small tree")
def test_an_interrupt_ends_all_and_says_what_failed(tests: Path) -> None:
    waits = "import pathlib, time; pathlib.Path('waits').touch(); time.sleep(60)"
    (tests / "test_other.py").write_text(f"{FAILS}def test_waits(): {waits}\n")
    (tests / "conftest.py").write_text(REPORTS)
    command = [sys.executable, str(TOOLS / "run_tests.py"), "tests/test_other.py"]
    with subprocess.Popen(
        command, cwd=tests.parent, stdout=subprocess.PIPE, text=True, process_group=0
    ) as running:
        try:
            while not all((tests.parent / name).exists() for name in ("waits", "reported")):
                time.sleep(0.05)
        finally:
            os.killpg(running.pid, signal.SIGINT)
        said, _ = running.communicate(timeout=60)
    assert running.returncode == 2
    assert said.count("no tests ran") == 0
    assert "test_other.py::test_fails" in said


@pytest.mark.slow("run_tests on a small tree")
def test_old_results_are_not_those_of_this_run(tests: Path) -> None:
    run(tests)
    ran = run(tests, "--no-such-option")
    assert ran.returncode == 4
    assert "tests/test_beside" not in ran.stdout
    assert ran.stderr.count("unrecognized arguments") == 1, "the other part asks no more"
    assert "tests/test_beside" not in run(tests, "--report").stdout


@pytest.mark.slow("run_tests on a small tree")
def test_no_test_chosen_is_an_error_and_one_part_without_tests_is_none(tests: Path) -> None:
    ran = run(tests, "-k", "nothing_has_this_name")
    assert ran.returncode == 5
    assert "no test was selected" in ran.stderr
    assert run(tests, "tests/test_alone.py").returncode == 0


@pytest.mark.slow("run_tests on a small tree")
def test_markers_are_chosen_within_the_parts(tests: Path) -> None:
    (tests / "test_other.py").write_text(
        f"import pytest\npytestmark = pytest.mark.other\n{PASSES}\n@pytest.mark.alone\n{FAILS}"
    )
    assert run(tests, "-m", "other and not alone").returncode == 0
    ran = run(tests, "-m", "other")
    assert ran.returncode == 1
    assert "\n1 failed:\n" in ran.stdout


@pytest.mark.slow("run_tests on a small tree")
def test_both_parts_have_the_same_share(tests: Path) -> None:
    grid = "@pytest.mark.sweep\n@pytest.mark.parametrize('a', range(20))\ndef test_grid(a): pass\n"
    (tests / "test_grid.py").write_text("import pytest\n" + grid)
    (tests / "test_grid_alone.py").write_text(ALONE + grid)
    ran = run(tests, "--share", "3")
    assert "Left out: 26 cases of sweeps, 0 slow tests" in ran.stdout
    assert "share" not in ran.stdout.splitlines()[0]


# It passes only in the process that collects the tests.
BUSY = "def test_busy(pytestconfig): assert not hasattr(pytestconfig, 'workerinput')\n"


@pytest.mark.slow("run_tests on a small tree")
def test_what_passes_alone_is_no_failure_and_is_named(tests: Path) -> None:
    (tests / "test_other.py").write_text(BUSY)
    ran = run(tests)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-2:] == [
        "1 failed beside other tests and passed alone:",
        "  tests/test_other.py::test_busy",
    ]


@pytest.mark.slow("run_tests on a small tree")
@pytest.mark.parametrize(
    ("test", "arguments", "count"),
    [
        ("".join(BUSY.replace("busy", f"busy_{n}") for n in range(6)), (), 6),
        (BUSY + FAILS, (), 1),
        (BUSY, ("tests/test_other.py",), 1),
    ],
    ids=["too many", "one fails alone, too", "the tests were chosen"],
)
def test_a_failure_stays_one(
    tests: Path, test: str, arguments: tuple[str, ...], count: int
) -> None:
    (tests / "test_other.py").write_text(test)
    ran = run(tests, *arguments)
    assert ran.returncode == 1
    assert f"\n{count} failed:\n" in ran.stdout
