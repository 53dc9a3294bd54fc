"""Runs clang-tidy over the engine and its bindings; not over tests, which take it twice as long.

What passes is not checked again while nothing that clang-tidy reads of it changes: a stamp in the
user's cache folder (slipstream/clang-tidy), shared by all checkouts, is named by a digest of the
source, the headers that it includes, the configuration, the compiler flags and the versions.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from check_layers import included_layers

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("core", "bindings", "kernels")
STAMPS_KEPT_DAYS = 60


def stamps_folder() -> Path:
    """Return where the stamps are kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "slipstream" / "clang-tidy"


def compiler_calls(root: Path, build: Path) -> dict[Path, list[str]]:
    """Write the compilation database of engine and Python module; return each source's flags."""
    defines = [
        "-DSLIPSTREAM_TESTS=OFF",
        "-DSLIPSTREAM_PYTHON=ON",
        f"-DPython_EXECUTABLE={sys.executable}",
    ]
    command = ["cmake", "-S", str(root), "-B", str(build), "-G", "Ninja", *defines]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    database = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    ours = tuple(str(root / folder) + os.sep for folder in FOLDERS)
    return {
        Path(entry["file"]): shlex.split(entry["command"])[1:]
        for entry in sorted(database, key=lambda entry: entry["file"])
        if entry["file"].startswith(ours)
    }


def included_files(source: Path, flags: list[str]) -> list[Path]:
    """Return the source and the files that its quoted includes reach, in the folders of -I too."""
    folders = [Path(flag[2:]) for flag in flags if flag.startswith("-I")]
    found: set[Path] = set()
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for _, target, _ in included_layers(path):
            tried = (folder / target for folder in (path.parent, *folders))
            waiting += [candidate for candidate in tried if candidate.is_file()][:1]
    return sorted(found)


def versions() -> str:
    """Return the versions of clang-tidy and of whose headers it reads."""
    said = [
        subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout
        for name in ("clang-tidy", "g++")
    ]
    try:
        said.append(version("nanobind"))
    except PackageNotFoundError:
        pass
    return "\n".join(said)


def key_of(root: Path, shared: str, source: Path, flags: list[str]) -> str:
    """Return the digest of everything that decides what clang-tidy says about the source."""
    digest = hashlib.sha256(f"{shared}\0{shlex.join(flags)}".replace(str(root), ".").encode())
    for path in (root / ".clang-tidy", *included_files(source, flags)):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"\0{os.path.relpath(path, root)}\0{content}".encode())
    return digest.hexdigest()


def tidy(build: Path, source: Path) -> str:
    """Return what clang-tidy says about one file; empty when it passes."""
    command = ["clang-tidy", "-p", str(build), "--quiet", str(source)]
    result = subprocess.run(command, capture_output=True, text=True)
    return "" if result.returncode == 0 else result.stdout or result.stderr


def check(stamps: Path, check_one: Callable[[Path], str], keys: dict[Path, str]) -> list[str]:
    """Return the findings in the sources that have no stamp; stamp those that have no findings."""
    stamps.mkdir(parents=True, exist_ok=True)
    findings: list[str] = []
    unknown = [source for source, key in keys.items() if not (stamps / key).exists()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for source, text in zip(unknown, pool.map(check_one, unknown), strict=True):
            if text:
                findings.append(text)
            else:
                (stamps / keys[source]).touch()
    for source in keys.keys() - unknown:
        (stamps / keys[source]).touch()  # its age counts from its last use
    return findings


def drop_old(stamps: Path) -> None:
    """Delete the stamps that were of no use for a long time."""
    limit = time.time() - STAMPS_KEPT_DAYS * 24 * 3600
    for stamp in stamps.iterdir():
        if stamp.stat().st_mtime < limit:
            stamp.unlink(missing_ok=True)


def main(root: Path = ROOT) -> int:
    """Print the findings; return 1 when there are any."""
    build = root / "build" / "tidy"
    shared = versions()
    calls = compiler_calls(root, build)
    keys = {source: key_of(root, shared, source, flags) for source, flags in calls.items()}
    findings = check(stamps_folder(), partial(tidy, build), keys)
    drop_old(stamps_folder())
    print("".join(findings), end="")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
