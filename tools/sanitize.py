"""Run the C++ tests under the sanitizers: all tests, or the tests that a change may affect.

`all`, called by `make sanitize`, runs every test program. If all programs pass, `all` writes
tests/sanitized.json with a digest of each program's dependencies. `share`, called by `.ci/run`,
runs the programs whose digest differs from that in tests/sanitized.json, and a third of all
programs. Three consecutive commits together run all programs.

A program depends on its own source and on the shared files: all files in its test folder except the
sources of programs. A program also depends on the files that its source and the shared sources
include, because CMake links the shared sources to every program. If a program includes a file of a
layer, it depends on all files in the layer's folder and on their includes. A public header only
declares functions. A program that includes a public header also depends on the folder that is named
like the header, or that has a source named like the header. Every program depends on all CMake
files, and on CXXFLAGS and LDFLAGS.

The digests do not include the compiler and the libraries, because otherwise every program would run
on every other machine. The digests miss #include lines that name their file by a macro. They also
miss functions that a public header declares but a source with another name defines. The third of
all programs that runs at each commit covers these cases.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import commits
from includes import includes, reachable

ROOT = Path(__file__).resolve().parent.parent
RECORD = Path("tests/sanitized.json")
PRESETS = ("asan", "tsan")
SHARES = 3
# Test folders by the prefix of their programs' names in CMake.
FOLDERS = {
    "core/test": "",
    "core/fuzz": "",
    "kernels/test": "kernels_",
    "plugin/test": "plugin_",
    "plugin/fuzz": "",
}
# How the reports of sanitizers begin; see run_again().
REPORT = re.compile(r"(?:Address|Leak|Thread|UndefinedBehavior)Sanitizer|runtime error:")
MOST_AGAIN = 3  # more failures are no coincidence
PROGRAMS = ("*_test.cc", "*_fuzz.cc")  # the second replay the corpora of fuzzers


# ---- dependencies of a program ------------------------------------------------------------------


def programs(root: Path) -> dict[str, Path]:
    """Return the source of each test program, by the program's name."""
    sources = {
        prefix + source.stem: source
        for folder, prefix in FOLDERS.items()
        for pattern in PROGRAMS
        for source in (root / folder).glob(pattern)
    }
    return dict(sorted(sources.items()))


def shared_files(folder: Path) -> set[Path]:
    """Return the files in a test folder on which all programs of the folder depend."""
    files = {path for path in folder.rglob("*") if path.is_file()}
    return files.difference(*(folder.glob(pattern) for pattern in PROGRAMS))


def files_in(folder: Path) -> list[Path]:
    """Return the files of a folder, without those in its subfolders, which are other layers."""
    return [path for path in folder.glob("*") if path.is_file()]


def needed_with(tests: Path, path: Path) -> list[Path]:
    """Return the files on which a program depends because it depends on `path`."""
    top, core = tests.parent, tests.parent.parent / "core"  # the plugin includes the core
    needed = includes(path, [top, top / "include", core, core / "include"])
    layers = core if path.is_relative_to(core) else top
    if path.parent == layers / "include/slipstream":
        implemented = [source.parent for source in layers.rglob(f"{path.stem}.cc")]
        for folder in (*implemented, layers / path.stem):
            needed += files_in(folder)
    elif tests not in path.parents:
        needed += files_in(path.parent)
    return needed


def build_files(root: Path) -> set[Path]:
    """Return the CMake presets and all CMake files."""
    files = {root / "CMakePresets.json", root / "CMakeLists.txt", *root.glob("*.cmake")}
    for folder in ("core", "kernels", "plugin", "cmake"):
        files.update((root / folder).rglob("CMakeLists.txt"), (root / folder).rglob("*.cmake"))
    return files


def dependencies(root: Path, source: Path) -> list[Path]:
    """Return all files that may influence the behaviour of a program."""
    tests = source.parent
    shared = shared_files(tests)
    compiled = [source, *(path for path in shared if path.suffix == ".cc")]
    return sorted(reachable(compiled, partial(needed_with, tests)) | shared | build_files(root))


def digests(root: Path) -> dict[str, str]:
    """Return a digest of each program's dependencies and compiler flags."""
    flags = "\0".join(os.environ.get(name, "") for name in ("CXXFLAGS", "LDFLAGS"))
    digest_of: dict[str, str] = {}
    for name, source in programs(root).items():
        digest = hashlib.sha256("\0".join([*PRESETS, flags]).encode())
        for path in dependencies(root, source):
            content = hashlib.sha256(path.read_bytes()).digest()
            digest.update(str(path.relative_to(root)).encode() + b"\0" + content)
        digest_of[name] = digest.hexdigest()[:32]
    return digest_of


# ---- choice of programs -------------------------------------------------------------------------


def recorded(root: Path) -> dict[str, str]:
    """Return the digests with which all programs last passed; empty if none are recorded."""
    path = root / RECORD
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def share(passed: dict[str, str], current: dict[str, str], turn: Collection[str]) -> dict[str, str]:
    """Return the programs to run, with the reason for each.

    Args:
        passed: Digests of the programs when they last passed.
        current: Current digests of all programs.
        turn: Names of the programs that this commit runs in any case (a third of all programs).
    """
    reasons: dict[str, str] = {}
    for name, digest in current.items():
        if passed.get(name) != digest:
            reasons[name] = "sources or flags changed since make sanitize passed"
        elif name in turn:
            reasons[name] = "its turn: a third of all programs at each commit"
    return reasons


def announce(reasons: dict[str, str], total: int) -> None:
    """Print the programs that will run, with the reasons, and the number of the other programs."""
    print(f"{len(reasons)} of {total} programs run under the sanitizers:")
    for name, reason in reasons.items():
        print(f"  {name:28} {reason}")
    if total > len(reasons):
        print(
            f"Left out: {total - len(reasons)} programs, which passed with the same sources."
            " make sanitize runs all programs.",
            flush=True,
        )


# ---- runs ---------------------------------------------------------------------------------------


def run(root: Path, names: list[str]) -> bool:
    """Build and run programs under each sanitizer until one fails; return whether all passed."""
    return all(run_preset(root, preset, names) for preset in PRESETS)


def run_preset(root: Path, preset: str, names: list[str]) -> bool:
    """Build and run programs under one sanitizer; return whether all of them ran and passed."""
    results = root / "build" / "results" / f"ctest-{preset}.xml"
    results.unlink(missing_ok=True)
    *builds, test = commands(preset, results, names)
    if any(subprocess.call(command, cwd=root) != 0 for command in builds):
        return False
    if subprocess.call(test, cwd=root) != 0 and not run_again(root, preset, results):
        return False
    missing = set(names) - {case.get("name") for case in cases_of(results) if has_run(case)}
    if missing:
        print(
            f"sanitize: ctest --preset {preset} has not run {', '.join(sorted(missing))}."
            " CMake must add_test() each program by its name.",
            file=sys.stderr,
        )
    return not missing


def run_again(root: Path, preset: str, results: Path) -> bool:
    """Run the failed programs once more, one at a time; return whether they pass.

    On a busy machine, a test can lose its patience. A program whose output has a report of a
    sanitizer has failed for good, and so has one without a result.
    """
    cases = cases_of(results)
    failed = [case for case in cases if case.get("status") == "fail"]
    names = [case.get("name") or "" for case in failed]
    has_report = any(REPORT.search("".join(case.itertext())) for case in failed)
    if has_report or not 0 < len(names) <= MOST_AGAIN:
        return False
    print(f"sanitize: run once more, alone: {', '.join(names)}", flush=True)
    again = results.with_stem(f"{results.stem}-again")
    return subprocess.call([*ctest_command(preset, again, names), "--parallel", "1"], cwd=root) == 0


def cases_of(results: Path) -> list[ElementTree.Element]:
    """Return the test cases in a file of ctest; none if there is no such file."""
    return list(ElementTree.parse(results).iter("testcase")) if results.exists() else []


def has_run(case: ElementTree.Element) -> bool:
    """Return whether a test case was run; whether it passed is decided by ctest."""
    return case.get("status") in ("run", "fail")


def commands(preset: str, results: Path, names: list[str]) -> list[list[str]]:
    """Return the commands that configure, build and run programs."""
    return [
        ["cmake", "--preset", preset, "-Wno-dev", "--log-level=WARNING"],
        ["cmake", "--build", "--preset", preset, "--target", *names],
        ctest_command(preset, results, names),
    ]


def ctest_command(preset: str, results: Path, names: list[str]) -> list[str]:
    """Return the command that runs programs and writes their results."""
    return [
        *(*fixed_addresses(), "ctest", "--preset", preset, "--output-junit", str(results)),
        *("--tests-regex", f"^({'|'.join(names)})$"),
    ]


def fixed_addresses() -> list[str]:
    """Return a command prefix that turns off address randomization; it may be empty."""
    wrapper = ["setarch", "-R"]
    if shutil.which(wrapper[0]) is None:
        return []
    return wrapper if subprocess.call([*wrapper, "true"], stderr=subprocess.DEVNULL) == 0 else []


def run_all(root: Path) -> int:
    """Run all programs and record their digests; return 0 if all passed."""
    before = digests(root)
    if not run(root, list(before)):
        return 1
    after = digests(root)
    changed = sorted({name for name, _ in before.items() ^ after.items()})
    if changed:
        print(
            f"sanitize: dependencies of {', '.join(changed)} changed during the run, so nothing is"
            " recorded. Run make sanitize again.",
            file=sys.stderr,
        )
        return 1
    text = json.dumps(after, indent=1, sort_keys=True) + "\n"
    (root / RECORD).write_text(text, encoding="utf-8")
    print(f"All {len(after)} programs passed; {RECORD} records their sources.")
    return 0


def run_share(root: Path) -> int:
    """Run this commit's share of the programs; return 0 if all passed."""
    current = digests(root)
    reasons = share(recorded(root), current, commits.turn(current, commits.number(root), SHARES))
    announce(reasons, len(current))
    return 0 if run(root, list(reasons)) else 1


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run all test programs, or only this commit's share of them.

    Returns:
        0 if all of them passed, else 1.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=["all", "share"], help="programs to run")
    which = parser.parse_args(arguments).which
    return run_all(root) if which == "all" else run_share(root)


if __name__ == "__main__":
    sys.exit(main())
