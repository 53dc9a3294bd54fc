"""Run the Python tests and report their times.

Tests that may run in parallel run first, and then all other tests. If a few of the parallel tests
failed, these run once more, one after the other, because a busy machine can exhaust a test's
patience. The run passes if they pass then, and the report names them. `make test` and
`make test-all` call this script after the C++ tests. Results are stored under build/results: a
JUnit file of each part, and a list of the tests that do not run at this commit (see --share).
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

import commits
from rich.console import Console
from rich.table import Table

RESULTS = Path("build/results")
WORKERS = max(2, os.cpu_count() or 2)
PARTS = {
    # Tests are distributed one by one, because the times of test files differ by a factor of 100.
    "beside": ["-n", str(WORKERS), "--dist", "worksteal", "-m", "not alone"],
    "alone": ["-m", "alone"],
}
AGAIN = "again"  # the part of the parallel tests that failed
MOST_AGAIN = 5  # more failures are no coincidence
LEFT_OUT = RESULTS / "left-out.json"
# Exit codes of pytest.
FAILED = 1
ENDED_EARLY = (2, 3, 4)  # interrupted, internal error, wrong usage
NOTHING_SELECTED = 5  # -k or -m selects no test


def run_part(name: str, share: str, marks: str, arguments: list[str]) -> int:
    """Run one part of the tests; return pytest's exit code, or 1 if the results show a failure."""
    *options, part_marks = PARTS[name]
    chosen = f"({part_marks}) and ({marks})" if marks else part_marks
    # Options have the form --name=value, because pytest would take an existing file that follows an
    # unknown option for a test.
    shared = (f"--share={share}", f"--left-out={LEFT_OUT}")
    return run_pytest(name, [*options, chosen, *shared, *arguments])


def run_again() -> int:
    """Run the failed parallel tests once more, one after the other, if they are few.

    Returns:
        pytest's exit code; 1 if the tests were too many, or one of their files has an error.
    """
    failed = failures([results_of("beside")])
    if not 0 < len(failed) <= MOST_AGAIN or not all("::" in name for name in failed):
        return FAILED
    print(f"{len(failed)} failed beside other tests, and are run again, alone:", flush=True)
    return run_pytest(AGAIN, failed)


def run_pytest(name: str, arguments: list[str]) -> int:
    """Run pytest; return its exit code, or 1 if the results show a failure."""
    cases = results_of(name)
    started = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", f"--junitxml={cases}", *arguments]
    )
    try:
        code = started.wait()
    except KeyboardInterrupt:  # pytest gets the signal, too, and ends its own processes
        code = started.wait()
    if code == 0 and not has_passed(cases):
        print(f"pytest ended with 0, but not all tests in {cases} passed", file=sys.stderr)
        return 1
    return code


def results_of(part: str) -> Path:
    """Return the JUnit file of a part."""
    return RESULTS / f"{part}.xml"


def failures(paths: Iterable[Path]) -> list[str]:
    """Return the identifiers of the failed cases in result files."""
    return [place(case)[1] for path in paths for case in cases_of(path) if has_failed(case)]


def has_passed(path: Path) -> bool:
    """Return whether all test cases in a result file passed."""
    cases = cases_of(path)
    return bool(cases) and not any(map(has_failed, cases))


def has_failed(case: ElementTree.Element) -> bool:
    """Return whether a test case, its set-up or its collection failed."""
    return not {"failure", "error"}.isdisjoint(element.tag for element in case)


def cases_of(path: Path) -> list[ElementTree.Element]:
    """Return the test cases in a result file; none if the file is missing or incomplete."""
    try:
        return list(ElementTree.parse(path).iter("testcase"))
    except (FileNotFoundError, ElementTree.ParseError):
        return []


def place(case: ElementTree.Element) -> tuple[str, str]:
    """Return a pair: the file of a test case, and pytest's identifier of the case."""
    # If a module could not be imported, its case has no class name.
    parts = (case.get("classname") or case.get("name") or "").split(".")
    last = next((n for n, part in enumerate(parts) if part.startswith("test_")), len(parts) - 1)
    file = "/".join(parts[: last + 1]) + ".py"
    return file, "::".join([file, *parts[last + 1 :], case.get("name") or ""])


def seconds_by_file(paths: Iterable[Path]) -> dict[str, tuple[float, int]]:
    """Return seconds and number of cases of each test file or C++ program, the longest first."""
    times: dict[str, list[float]] = defaultdict(list)
    for path in paths:
        for case in cases_of(path):
            is_cpp = path.stem.startswith("ctest")
            name = f"{path.stem} {case.get('name')}" if is_cpp else place(case)[0]
            times[name].append(float(case.get("time", 0)))
    sums = {name: (sum(seconds), len(seconds)) for name, seconds in times.items()}
    return dict(sorted(sums.items(), key=lambda item: -item[1][0]))


def report(console: Console, paths: list[Path], rows: int) -> None:
    """Print the slowest files, the number of tests that were left out, and the failed tests."""
    files = seconds_by_file(paths)
    table = Table("test file", box=None)
    for column in ("cases", "seconds"):
        table.add_column(column, justify="right")
    for name, (seconds, cases) in list(files.items())[:rows]:
        table.add_row(name, f"{cases}", f"{seconds:.1f}")
    others = list(files.values())[rows:]
    total = sum(seconds for seconds, _ in files.values())
    table.add_row(f"{len(others)} more files", f"{sum(cases for _, cases in others)}", "")
    table.add_row("all", f"{sum(cases for _, cases in files.values())}", f"{total:.1f}")
    console.print(table)
    say_left_out(console)
    say_failed(paths)


def say_failed(paths: list[Path]) -> None:
    """Print the failed tests, and those that failed beside others and passed alone."""
    failed = dict.fromkeys(failures(paths))
    again = [path for path in paths if path.stem == AGAIN]
    passed = {place(case)[1] for path in again for case in cases_of(path)}.difference(
        failures(again)
    )
    for names, what in (
        ([name for name in failed if name in passed], "failed beside other tests and passed alone"),
        ([name for name in failed if name not in passed], "failed"),
    ):
        if names:
            print(f"{len(names)} {what}:", *map(shlex.quote, names), sep="\n  ")


def say_left_out(console: Console) -> None:
    """Print how many tests the chosen share left out, and the command that runs them."""
    if not LEFT_OUT.exists():
        return
    names = json.loads(LEFT_OUT.read_text(encoding="utf-8"))
    if any(names.values()):
        console.print(
            f"Left out: {len(names['sweep'])} cases of sweeps, {len(names['slow'])} slow tests"
            f" (listed in {LEFT_OUT}). make test-all runs them.",
            highlight=False,
            soft_wrap=True,
        )


def run(share: str, marks: str, arguments: list[str]) -> int:
    """Run both parts of the tests, and return the first exit code that is not 0.

    A part that selects no tests is ignored. If no part selects a test, the exit code is pytest's
    code for an empty selection. If arguments choose the tests, none of them runs again.
    """
    if share == "commit":
        share = str(commits.number(Path.cwd()))
        print(f"share {share}, the number of this commit; SHARE={share} runs it again", flush=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for path in (LEFT_OUT, *map(results_of, (*PARTS, AGAIN))):
        path.unlink(missing_ok=True)
    codes: list[int] = []
    for name in PARTS:
        codes.append(run_part(name, share, marks, arguments))
        if name == "beside" and codes[-1] == FAILED and not arguments:
            codes[-1] = run_again()
        if codes[-1] in ENDED_EARLY:
            break
    if set(codes) == {NOTHING_SELECTED}:
        print("no test was selected: check PYTEST_ARGS", file=sys.stderr)
        return NOTHING_SELECTED
    return next((code for code in codes if code not in (0, NOTHING_SELECTED)), 0)


def main() -> int:
    """Run the tests, print the report, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--share",
        default="commit",
        help="tests to run: all, a number that selects a share, or commit (HEAD's number)",
    )
    parser.add_argument("-m", dest="marks", default="", help="expression of markers, as in pytest")
    parser.add_argument("--rows", type=int, default=30, help="number of files in the report")
    parser.add_argument("--report", action="store_true", help="only report the existing results")
    chosen, arguments = parser.parse_known_args()
    if chosen.report:
        report(Console(width=100), sorted(RESULTS.glob("*.xml")), chosen.rows)
        return 0
    code = run(chosen.share, chosen.marks, arguments)
    results = [path for path in map(results_of, (*PARTS, AGAIN)) if path.exists()]
    if results:
        report(Console(width=100), results, chosen.rows)
    return code


if __name__ == "__main__":
    sys.exit(main())
