"""Tests of the engine's staging code on the GPU, by a C++ program that is built here.

Each run of the program executes one part of the tests (see `PARTS`).
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .build import HERE, run_compiler
from .isolated import ROOT

CORE = ROOT / "core"
BASE = ("descriptor", "fork", "memory")
TESTED = ("device_contract", "staging_world")
OPTIONS = ["-std=c++20", "-O2", "-pthread", f"-I{CORE}", f"-I{CORE / 'include'}"]
PARTS = ("contract", "correctness", "rates", "latency", "trouble")


class StagingError(RuntimeError):
    """The program failed."""


def sources() -> list[Path]:
    """Return the C++ sources of the program: engine code, test code, and `main` (staging.cc)."""
    layers = [
        path for layer in ("gate", "device", "device/cuda") for path in (CORE / layer).glob("*.cc")
    ]
    base = [CORE / "base" / f"{name}.cc" for name in BASE]
    tested = [CORE / "test" / f"{name}.cc" for name in TESTED]
    return sorted([*layers, *base, *tested, HERE / "staging.cc"])


def digest() -> str:
    """Return a digest of the program's sources, all headers and the compiler options."""
    headers = sorted(CORE.rglob("*.h"))
    result = hashlib.sha256(" ".join(OPTIONS).encode())
    for path in (*sources(), *headers):
        result.update(path.read_bytes())
    return result.hexdigest()[:16]


def build_staging(folder: Path) -> Path:
    """Build the program if a source or header has changed; return the program's path.

    Args:
        folder: Folder for the built files.

    Raises:
        BuildError: g++ is missing or failed.
    """
    objects = folder / f"staging-{digest()}"
    program = objects / "staging"
    if program.exists():
        return program
    objects.mkdir(parents=True, exist_ok=True)

    def compile_one(source: Path) -> Path:
        # Two sources may have the same name in different folders.
        target = objects / f"{source.parent.name}-{source.stem}.o"
        run_compiler(["g++", *OPTIONS, "-c", str(source), "-o", str(target)], source.name)
        return target

    with ThreadPoolExecutor() as pool:
        compiled = list(pool.map(compile_one, sources()))
    part = program.with_suffix(".part")
    run_compiler(["g++", "-pthread", *map(str, compiled), "-ldl", "-o", str(part)], "staging")
    part.replace(program)
    return program


def run_program(program: Path, arguments: list[str]) -> Iterator[dict[str, Any]]:
    """Run the program; yield the JSON objects (results) that it prints.

    Raises:
        StagingError: The program ended with an error, which the message quotes in full.
    """
    with subprocess.Popen(
        [str(program), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            yield json.loads(line)
        errors = process.stderr.read().strip()
    if process.returncode < 0:
        raise StagingError(f"signal {-process.returncode} ended {' '.join(arguments)}. {errors}")
    if process.returncode:
        raise StagingError(errors or f"exit code {process.returncode}")


def broken_promise(row: dict[str, Any]) -> str:
    """Return the failure that a result reports (a failed check or wrong data); "" if none."""
    if row.get("holds") is False:
        return f"{row['case']}: {row['failed']}"
    if row.get("wrong_words_at_host") or row.get("wrong_words_at_device"):
        return f"wrong words: {row}"
    return ""


def checked(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the results; after the last result, raise an error if any result reports a failure.

    Raises:
        StagingError: A result reports a failure; the message lists all failures.
    """
    broken: list[str] = []
    for row in rows:
        broken += filter(None, [broken_promise(row)])
        yield row
    if broken:
        raise StagingError("; ".join(broken))


def staging(folder: Path, arguments: list[str]) -> Iterator[dict[str, Any]]:
    """Run a part of the program; yield its results.

    Args:
        folder: Folder for the built files.
        arguments: Name of the part and, optionally, the file name of the CUDA driver's library and
            the size of large tensors in MiB.

    Raises:
        BuildError: g++ is missing or failed.
        StagingError: The program failed, or a result reports a failed check or wrong data.
    """
    yield from checked(run_program(build_staging(folder), arguments))


def sharing(folder: Path, arguments: list[str]) -> Iterator[dict[str, Any]]:
    """Run the part "sharing" in several processes at once.

    Args:
        folder: Folder for the built files.
        arguments: Number of processes, and then the arguments of `staging`.

    Raises:
        BuildError: g++ is missing or failed.
        StagingError: One of the processes failed.
    """
    program, count = build_staging(folder), int(arguments[0])

    def run(_: int) -> list[dict[str, Any]]:
        return list(run_program(program, ["sharing", *arguments[1:]]))

    with ThreadPoolExecutor(count) as pool:
        runs = pool.map(run, range(count))
        rows = [{"process": number} | row for number, run in enumerate(runs) for row in run]
    yield from checked(rows)
