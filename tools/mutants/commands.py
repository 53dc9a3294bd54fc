"""Commands that build a mutant, and commands that run its tests."""

from __future__ import annotations

import sys
from pathlib import Path

from .draw import Mutant
from .parts import PARTS, closest_programs, closest_tests
from .reach import EVERYTHING

# time limits in seconds for each test command
LIMIT_SECONDS = {"closest": 600, "run": 1800, "whole": 3600}
BUILD_SECONDS = 3600
TEST_SECONDS = 90  # time limit in seconds for one test, because many mutants hang
# In this separate build folder warnings are not errors, because a mutant may cause warnings.
CONFIGURE = ["cmake", "--preset", "release", "-B", "build/mutants", "-D", "SLIPSTREAM_WERROR=OFF"]
BUILD = ["cmake", "--build", "build/mutants"]
INSTALL = ["make", ".venv/stamps/package"]
CORE_TESTS = ["ctest", "--test-dir", "build/mutants/core/test", "--output-on-failure"]


def build_commands(mutant: Mutant, *, whole: bool = False) -> list[list[str]]:
    """Return the commands that build a C++ mutant: its tests and, if `whole`, the Python module.

    The list is empty for mutants of Python, which need no build.
    """
    if not PARTS[mutant.part].is_cpp:
        return []
    return [CONFIGURE, BUILD, INSTALL] if whole else [CONFIGURE, BUILD]


def part_commands(root: Path, mutant: Mutant, *, closest: bool = False) -> list[list[str]]:
    """Return the commands that run a mutant's closest tests, then all tests of its part."""
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
    """Return the commands that run the tests that reach a mutant.

    All tests run if it is not known which tests reach the mutant.
    """
    first = [[*CORE_TESTS, "--stop-on-failure"]] if PARTS[mutant.part].is_cpp else []
    tests = [EVERYTHING] if mutant.reached is None else mutant.reached
    return [*first, ["make", "test-python", f"PYTEST_ARGS=-x {' '.join(tests)}"]] if tests else []


def command_of(test: str) -> list[str]:
    """Return the command that runs a failed test again, alone."""
    if "tests/" in test:
        return [sys.executable, "-m", "pytest", "-q", test]
    return [*CORE_TESTS, "-R", f"^{test}$", "--no-tests=error"]
