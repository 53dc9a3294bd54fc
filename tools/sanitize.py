"""Runs the C++ tests under the sanitizers: all of them, or those that a change can reach.

`all`, which `make sanitize` calls, runs every program and writes tests/sanitized.json when all have
passed: for each program a digest of the files that it depends on. `share`, which `.ci/run` calls,
runs the programs whose digest differs from that record, and a third of all programs; the thirds of
three successive commits are all programs.

A program depends on its own source, on what it includes from its test folder, on the layers that
it includes and those that their arrows reach (check_layers.py), and on the CMake files. A public
header only declares: the layer with its name, or with a source of its name, is reached too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import commits
from check_layers import ALLOWED, PLAIN, included_layers

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


def test_files(source: Path) -> set[Path]:
    """Return the source, the headers of its folder that it reaches, and the sources beside them."""
    found: set[Path] = set()
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path in found or not path.exists():
            continue
        found.add(path)
        if path.suffix == ".h":
            waiting.append(path.with_suffix(".cc"))
        for _, target, _ in included_layers(path):
            waiting.append(source.parent / target.removeprefix("test/"))
    return found


def layers(root: Path, source: Path) -> set[str]:
    """Return the layers that the program includes, and those that the arrows reach from them."""
    plain = PLAIN.get(source.parent.parent.name)
    waiting: list[str] = []
    for path in test_files(source):
        for _, target, layer in included_layers(path):
            if (source.parent / target.removeprefix("test/")).exists():
                continue
            waiting.append(plain if plain and "/" not in target else layer)
            if layer == "public":
                waiting += layers_named(root, Path(target).stem)
    found: set[str] = set()
    while waiting:
        layer = waiting.pop()
        if layer in ALLOWED and layer not in found:
            found.add(layer)
            waiting += ALLOWED[layer]
    return found


def layers_named(root: Path, name: str) -> list[str]:
    """Return the layers that have the name of a public header, or a source with its name."""
    return [
        layer
        for layer in ALLOWED
        if layer == name or (layer_folder(root, layer) / f"{name}.cc").exists()
    ]


def layer_folder(root: Path, layer: str) -> Path:
    """Return the folder of a layer; its sub-folders are other layers."""
    special = {"public": "core/include/slipstream", "runtime": "core"}
    outside = layer.startswith(("kernels", "bindings"))
    return root / special.get(layer, layer if outside else f"core/{layer}")


def dependencies(root: Path, source: Path) -> list[Path]:
    """Return every file whose change may change what the program does."""
    found = test_files(source)
    for layer in layers(root, source):
        for pattern in ("*.cc", "*.h"):
            found |= set(layer_folder(root, layer).glob(pattern))
    found |= {folder / "CMakeLists.txt" for folder in (root, source.parent.parent, source.parent)}
    found.add(root / "CMakePresets.json")
    return sorted(path for path in found if path.exists())


def digests(root: Path) -> dict[str, str]:
    """Return by program a digest of the names and contents of the files that it depends on."""
    contents: dict[Path, bytes] = {}
    found: dict[str, str] = {}
    for name, source in programs(root).items():
        digest = hashlib.sha256()
        for path in dependencies(root, source):
            if path not in contents:
                contents[path] = hashlib.sha256(path.read_bytes()).digest()
            digest.update(str(path.relative_to(root)).encode() + b"\0" + contents[path])
        found[name] = digest.hexdigest()[:32]
    return found


# ---- which programs are run ---------------------------------------------------------------------


def recorded(root: Path) -> dict[str, str]:
    """Return the digests with which all programs passed last; none where they never did."""
    path = root / RECORD
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def third(names: Iterable[str], number: int) -> set[str]:
    """Return a third of the names; those of three successive numbers are all."""
    ordered = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    return set(ordered[number % SHARES :: SHARES])


def share(root: Path, number: int) -> dict[str, str]:
    """Return the programs to run, each with the reason."""
    passed = recorded(root)
    current = digests(root)
    turn = third(current, number)
    reasons: dict[str, str] = {}
    for name, digest in current.items():
        if passed.get(name) != digest:
            reasons[name] = "changed since make sanitize passed"
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
    return all(
        subprocess.call(command, cwd=root) == 0
        for preset in PRESETS
        for command in commands(root, preset, names)
    )


def commands(root: Path, preset: str, names: list[str]) -> list[list[str]]:
    """Return the commands that configure, build and run the programs."""
    results = root / "build" / "results" / f"ctest-{preset}.xml"
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


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run all programs, or this commit's share; return 0 when they passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=["all", "share"], help="programs to run")
    which = parser.parse_args(arguments).which
    current = digests(root)
    if which == "share":
        reasons = share(root, commits.number(root))
        announce(reasons, len(current))
        return 0 if run(root, list(reasons)) else 1
    if not run(root, list(current)):
        return 1
    text = json.dumps(current, indent=1, sort_keys=True) + "\n"
    (root / RECORD).write_text(text, encoding="utf-8")
    print(f"All {len(current)} programs passed; {RECORD} records with which sources.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
