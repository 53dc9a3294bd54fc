"""Runs the Python tests: side by side what may, alone what must; says where the time went.

Called by `make test` and `make test-all` after the C++ tests. Results are under build/results:
JUnit files of each part, and what the share left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table

RESULTS = Path("build/results")
WORKERS = max(2, os.cpu_count() or 2)
PARTS = {
    # One by one, by whoever is free: files differ a hundredfold in how long they take.
    "beside": ["-n", str(WORKERS), "--dist", "worksteal", "-m", "not alone"],
    "alone": ["-m", "alone"],
}
NOTHING_SELECTED = 5  # pytest's exit code when -k or -m leaves no test


def run_part(name: str, share: str, arguments: list[str]) -> int:
    """Run one part of the tests and return pytest's exit code."""
    return subprocess.call(
        [
            *(sys.executable, "-m", "pytest", "-q", *PARTS[name]),
            # In one word: pytest takes a file that is there for a test, before it knows the option.
            *(f"--share={share}", f"--left-out={RESULTS}/left-out-{name}.json"),
            f"--junitxml={RESULTS / name}.xml",
            *arguments,
        ]
    )


def seconds_by_file() -> dict[str, tuple[float, int]]:
    """Return by test file, or C++ program, its seconds and its number of cases, longest first."""
    found: dict[str, list[float]] = defaultdict(list)
    for path in sorted(RESULTS.glob("*.xml")):
        for case in ElementTree.parse(path).iter("testcase"):
            name = path.stem if path.stem.startswith("ctest") else case.get("classname", "?")
            found[f"{name} {case.get('name')}" if name == path.stem else module(name)].append(
                float(case.get("time", 0))
            )
    sums = {name: (sum(times), len(times)) for name, times in found.items()}
    return dict(sorted(sums.items(), key=lambda item: -item[1][0]))


def module(name: str) -> str:
    """Return the part of a dotted name up to the test module: classes are not counted apart."""
    parts = name.split(".")
    last = next((n for n, part in enumerate(parts) if part.startswith("test_")), len(parts) - 1)
    return "/".join(parts[: last + 1])


def left_out() -> dict[str, set[str]]:
    """Return by marker the cases that this share left out; each part lists all."""
    total: dict[str, set[str]] = defaultdict(set)
    for path in RESULTS.glob("left-out-*.json"):
        for marker, names in json.loads(path.read_text(encoding="utf-8")).items():
            total[marker] |= set(names)
    return total


def report(console: Console, rows: int) -> None:
    """Print the longest files, and what was left out."""
    table = Table("test file", "cases", "seconds", box=None)
    for name, (seconds, cases) in list(seconds_by_file().items())[:rows]:
        table.add_row(name, f"{cases}", f"{seconds:.1f}")
    console.print(table)
    skipped = left_out()
    if any(skipped.values()):
        console.print(
            f"Left out: {len(skipped['sweep'])} cases of sweeps, {len(skipped['slow'])} slow tests"
            f" (listed in {RESULTS}/left-out-*.json). make test-all runs them.",
            highlight=False,
        )


def main() -> int:
    """Run the parts, report, and return the first exit code that is not 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", default="commit", help="share of the sweeps: commit, all, 0-3")
    parser.add_argument("--rows", type=int, default=30, help="number of files in the report")
    parser.add_argument("--report", action="store_true", help="only report on the last run")
    chosen, arguments = parser.parse_known_args()
    codes = [0]
    if not chosen.report:
        RESULTS.mkdir(parents=True, exist_ok=True)
        codes = [run_part(name, chosen.share, arguments) for name in PARTS]
    report(Console(width=100), chosen.rows)
    return next((code for code in codes if code not in (0, NOTHING_SELECTED)), 0)


if __name__ == "__main__":
    sys.exit(main())
