"""Runs the C++ tests under the sanitizers: all of them, or those that a change can reach.

`all`, which `make sanitize` calls, runs every program and writes tests/sanitized.json when all have
passed: for each program a digest of the files that it depends on. `share`, which `.ci/run` calls,
runs the programs whose digest differs from that record, and a third of all programs; the thirds of
three successive commits are all programs.

A program depends on its own source, on everything else in its test folder but the other programs,
and on what it and the shared sources, which CMake links to all programs, include. With a file of a
layer come all files of the layer's folder and what they include. A public header only declares:
with it comes the folder that has its name, or that has a source of its name. All CMake files, and
CXXFLAGS and LDFLAGS, count for every program.

The digests leave out the compiler and the libraries, because with them every program would run on
any other machine. They miss an include whose name is a macro, and a function that a public header
declares and a source of another name defines. The thirds look after all of these.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
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
# The test folders, with what CMake puts in front of the names of their programs.
FOLDERS = {"core/test": "", "kernels/test": "kernels_"}


# ---- what a program depends on ------------------------------------------------------------------


def programs(root: Path) -> dict[str, Path]:
    """Return the source of each test program by the program's name."""
    found = {
        prefix + source.stem: source
        for folder, prefix in FOLDERS.items()
        for source in (root / folder).glob("*_test.cc")
    }
    return dict(sorted(found.items()))


def shared_files(folder: Path) -> set[Path]:
    """Return the files of a test folder that no program has for itself."""
    files = {path for path in folder.rglob("*") if path.is_file()}
    return files - set(folder.glob("*_test.cc"))


def files_in(folder: Path) -> list[Path]:
    """Return the files of a folder without those of its sub-folders, which are other layers."""
    return [path for path in folder.glob("*") if path.is_file()]


def needed_with(tests: Path, path: Path) -> list[Path]:
    """Return the files that a program of the test folder may need if it needs this one."""
    top = tests.parent
    found = includes(path, [top, top / "include"])
    if path.parent == top / "include/slipstream":
        implemented = [source.parent for source in top.rglob(f"{path.stem}.cc")]
        for folder in (*implemented, top / path.stem):
            found += files_in(folder)
    elif tests not in path.parents:
        found += files_in(path.parent)
    return found


def build_files(root: Path) -> set[Path]:
    """Return the presets and all CMake files."""
    found = {root / "CMakePresets.json", root / "CMakeLists.txt", *root.glob("*.cmake")}
    for folder in ("core", "kernels", "cmake"):
        found.update((root / folder).rglob("CMakeLists.txt"), (root / folder).rglob("*.cmake"))
    return found


def dependencies(root: Path, source: Path) -> list[Path]:
    """Return every file whose change may change what the program does."""
    tests = source.parent
    shared = shared_files(tests)
    compiled = [source, *(path for path in shared if path.suffix == ".cc")]
    return sorted(reachable(compiled, partial(needed_with, tests)) | shared | build_files(root))


def digests(root: Path) -> dict[str, str]:
    """Return by program a digest of the flags and of the files that it depends on."""
    flags = "\0".join(os.environ.get(name, "") for name in ("CXXFLAGS", "LDFLAGS"))
    found: dict[str, str] = {}
    for name, source in programs(root).items():
        digest = hashlib.sha256("\0".join([*PRESETS, flags]).encode())
        for path in dependencies(root, source):
            content = hashlib.sha256(path.read_bytes()).digest()
            digest.update(str(path.relative_to(root)).encode() + b"\0" + content)
        found[name] = digest.hexdigest()[:32]
    return found


# ---- which programs are run ---------------------------------------------------------------------


def recorded(root: Path) -> dict[str, str]:
    """Return the digests with which all programs passed last; none where they never did."""
    path = root / RECORD
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def share(passed: dict[str, str], current: dict[str, str], turn: Collection[str]) -> dict[str, str]:
    """Return the programs that did not pass with their digest, or whose turn it is, with why."""
    reasons: dict[str, str] = {}
    for name, digest in current.items():
        if passed.get(name) != digest:
            reasons[name] = "sources or flags changed since make sanitize passed"
        elif name in turn:
            reasons[name] = "its turn: a third of all programs at each commit"
    return reasons


def announce(reasons: dict[str, str], total: int) -> None:
    """Print which programs are run, why, and how many are left out."""
    print(f"{len(reasons)} of {total} programs run under the sanitizers:")
    for name, reason in reasons.items():
        print(f"  {name:28} {reason}")
    if total > len(reasons):
        print(
            f"Left out: {total - len(reasons)} programs, which passed with the same sources."
            " make sanitize runs all programs.",
            flush=True,
        )


# ---- running them -------------------------------------------------------------------------------


def run(root: Path, names: list[str]) -> bool:
    """Build and run the programs under each sanitizer; stop at the first that fails."""
    return all(run_preset(root, preset, names) for preset in PRESETS)


def run_preset(root: Path, preset: str, names: list[str]) -> bool:
    """Build and run the programs under one sanitizer; return whether all ran and passed."""
    results = root / "build" / "results" / f"ctest-{preset}.xml"
    results.unlink(missing_ok=True)
    for command in commands(preset, results, names):
        if subprocess.call(command, cwd=root) != 0:
            return False
    cases = ElementTree.parse(results).iter("testcase")
    missing = set(names) - {case.get("name") for case in cases if case.get("status") == "run"}
    if missing:
        print(
            f"sanitize: ctest --preset {preset} has not run {', '.join(sorted(missing))}."
            " CMake must add_test() each program by its name.",
            file=sys.stderr,
        )
    return not missing


def commands(preset: str, results: Path, names: list[str]) -> list[list[str]]:
    """Return the commands that configure, build and run the programs."""
    return [
        ["cmake", "--preset", preset, "-Wno-dev", "--log-level=WARNING"],
        ["cmake", "--build", "--preset", preset, "--target", *names],
        [
            *(*fixed_addresses(), "ctest", "--preset", preset, "--output-junit", str(results)),
            *("--tests-regex", f"^({'|'.join(names)})$"),
        ],
    ]


def fixed_addresses() -> list[str]:
    """Return what keeps addresses in place, which TSAN of older compilers needs; may be nothing."""
    wrapper = ["setarch", "-R"]
    if shutil.which(wrapper[0]) is None:
        return []
    return wrapper if subprocess.call([*wrapper, "true"], stderr=subprocess.DEVNULL) == 0 else []


def run_all(root: Path) -> int:
    """Run all programs and record their digests; return 0 when they passed."""
    before = digests(root)
    if not run(root, list(before)):
        return 1
    after = digests(root)
    changed = sorted({name for name, _ in before.items() ^ after.items()})
    if changed:
        print(
            f"sanitize: files of {', '.join(changed)} changed during the run, so nothing is"
            " recorded. Run make sanitize again.",
            file=sys.stderr,
        )
        return 1
    text = json.dumps(after, indent=1, sort_keys=True) + "\n"
    (root / RECORD).write_text(text, encoding="utf-8")
    print(f"All {len(after)} programs passed; {RECORD} records with which sources.")
    return 0


def run_share(root: Path) -> int:
    """Run this commit's share of the programs; return 0 when they passed."""
    current = digests(root)
    reasons = share(recorded(root), current, commits.turn(current, commits.number(root), SHARES))
    announce(reasons, len(current))
    return 0 if run(root, list(reasons)) else 1


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run all programs, or this commit's share; return 0 when they passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=["all", "share"], help="programs to run")
    which = parser.parse_args(arguments).which
    return run_all(root) if which == "all" else run_share(root)


if __name__ == "__main__":
    sys.exit(main())
