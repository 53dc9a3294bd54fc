"""The commands that build what is tested, and those that run the tests which must kill a mutant."""

from __future__ import annotations

import sys
from pathlib import Path

from .draw import Mutant
from .parts import PARTS, closest_programs, closest_tests
from .reach import EVERYTHING

LIMIT_SECONDS = {"closest": 600, "run": 1800, "whole": 3600}  # for each command
BUILD_SECONDS = 3600
TEST_SECONDS = 90  # for one test: many mutants hang
# A build tree of its own, since warnings are no errors in it: a mutant may well cause some.
CONFIGURE = ["cmake", "--preset", "release", "-B", "build/mutants", "-D", "SLIPSTREAM_WERROR=OFF"]
BUILD = ["cmake", "--build", "build/mutants"]
INSTALL = ["make", ".venv/stamps/package"]
CORE_TESTS = ["ctest", "--test-dir", "build/mutants/core/test", "--output-on-failure"]


def build_commands(mutant: Mutant, *, whole: bool = False) -> list[list[str]]:
    """Return what builds the C++ tests, and for `whole` the module; Python needs no build."""
    if not PARTS[mutant.part].is_cpp:
        return []
    return [CONFIGURE, BUILD, INSTALL] if whole else [CONFIGURE, BUILD]


def part_commands(root: Path, mutant: Mutant, *, closest: bool = False) -> list[list[str]]:
    """Return the commands that run the closest tests, then the others of a mutant's part."""
    part, source = PARTS[mutant.part], Path(mutant.file)
    if part.is_cpp:
        ctest = [*CORE_TESTS, "--stop-on-failure"]
        programs = closest_programs(root, source)
        first = [[*ctest, "-R", f"^({'|'.join(programs)})$"]] if programs else []
        return first if closest else [*first, ctest]
    pytest = [sys.executable, "tools/run_tests.py", "--share", "commit", "-x", *part.options]
    pytest += ["--timeout", str(TEST_SECONDS)]
    chosen = [closest_tests(root, part, source)]
    chosen += [] if closest else [part.test_paths(root)]
    return [[*pytest, *tests] for tests in chosen if tests]


def whole_commands(mutant: Mutant) -> list[list[str]]:
    """Return what runs all tests that may tell a mutant: those that reach it, where it is known."""
    first = [[*CORE_TESTS, "--stop-on-failure"]] if PARTS[mutant.part].is_cpp else []
    tests = [EVERYTHING] if mutant.reached is None else mutant.reached
    return [*first, ["make", "test-python", f"PYTEST_ARGS=-x {' '.join(tests)}"]] if tests else []


def command_of(test: str) -> list[str]:
    """Return the command that runs one test that failed."""
    if "tests/" in test:
        return [sys.executable, "-m", "pytest", "-q", test]
    return [*CORE_TESTS, "-R", f"^{test}$", "--no-tests=error"]
