"""Run clang-tidy on the engine, the kernels and the bindings, except on tests.

Tests are left out, because checking them takes twice as long as checking the rest.

A source that passes is not checked again until an input of clang-tidy changes. For each source that
passed, there is a stamp: an empty file in the user's cache folder (slipstream/clang-tidy), which
all checkouts share. The name of the stamp is a digest of all inputs: the source, our headers that
it includes, every .clang-tidy, the compiler commands of the source, and the command line of
clang-tidy. The contents of headers that are not ours are not part of the digest; the versions of
clang-tidy, g++ and nanobind are used in their place. An #include line that names its file by a
macro is ignored.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from includes import includes, reachable

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("core", "bindings", "kernels", "plugin", "relay")
COMMAND = ("clang-tidy", "--quiet")
STAMPS_KEPT_DAYS = 60


def stamps_folder() -> Path:
    """Return the path of the folder with the stamps."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "slipstream" / "clang-tidy"


def is_ours(root: Path, path: Path) -> bool:
    """Return whether a path is in one of the folders in `FOLDERS`."""
    return any(path.is_relative_to(root / folder) for folder in FOLDERS)


def compiler_calls(root: Path, build: Path) -> dict[Path, list[str]]:
    """Write the compilation database, and return the compiler commands of each source."""
    defines = [
        "-DSLIPSTREAM_TESTS=OFF",
        "-DSLIPSTREAM_PYTHON=ON",
        f"-DPython_EXECUTABLE={sys.executable}",
    ]
    command = ["cmake", "-S", str(root), "-B", str(build), "-G", "Ninja", *defines]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    database = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    calls: dict[Path, list[str]] = {}
    for entry in sorted(database, key=lambda entry: entry["file"]):
        if is_ours(root, Path(entry["file"])):
            calls.setdefault(Path(entry["file"]), []).append(entry["command"])
    return calls


def versions() -> str:
    """Return one text with the versions of clang-tidy, g++ and nanobind.

    Clang-tidy reads the headers of all three, so a new version can change its findings.
    """
    outputs = [
        subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout
        for name in ("clang-tidy", "g++")
    ]
    try:
        outputs.append(version("nanobind"))
    except PackageNotFoundError:
        pass
    return "\n".join(outputs)


def key_of(root: Path, shared: str, calls: dict[Path, list[str]], source: Path) -> str:
    """Return a digest of everything that can change the findings in a source."""
    commands = calls[source]
    flags = [word for command in commands for word in shlex.split(command)]
    folders = [Path(flag[2:]) for flag in flags if flag.startswith("-I")]
    ours = [folder for folder in folders if is_ours(root, folder)]
    files = reachable([source], lambda path: includes(path, ours))
    files.add(root / ".clang-tidy")
    files.update(path for folder in FOLDERS for path in (root / folder).rglob(".clang-tidy"))
    digest = hashlib.sha256("\0".join([shared, *commands]).replace(str(root), ".").encode())
    for path in sorted(files):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"\0{os.path.relpath(path, root)}\0{content}".encode())
    return digest.hexdigest()


def tidy(build: Path, source: Path) -> str:
    """Return the output of clang-tidy for one source; "" if the source passes."""
    command = [*COMMAND, "-p", str(build), str(source)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode == 0:
        return ""
    ended = f"{source}: clang-tidy ended with {result.returncode}\n"
    return result.stdout or result.stderr or ended


def check(
    stamps: Path,
    sources: Iterable[Path],
    key: Callable[[Path], str],
    check_one: Callable[[Path], str],
) -> list[str]:
    """Check the sources that have no stamp, stamp those that pass, and return all findings.

    Args:
        stamps: Folder with the stamps.
        sources: Paths of the sources to check.
        key: Function that returns the name of a source's stamp.
        check_one: Function that checks a source and returns its findings; "" if there are none.
    """
    stamps.mkdir(parents=True, exist_ok=True)

    def findings(source: Path) -> str:
        stamp = stamps / key(source)
        if not stamp.exists():
            text = check_one(source)
            if text or key(source) != stamp.name:  # the source may have changed during the check
                return text
        stamp.touch()  # the age of a stamp is the time since its last use
        return ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [text for text in pool.map(findings, sources) if text]


def drop_old(stamps: Path) -> None:
    """Delete stamps that have not been used for `STAMPS_KEPT_DAYS`."""
    limit = time.time() - STAMPS_KEPT_DAYS * 24 * 3600
    for stamp in stamps.iterdir():
        try:
            if stamp.stat().st_mtime < limit:
                stamp.unlink()
        except FileNotFoundError:
            pass  # another checkout has deleted the stamp


def main(root: Path = ROOT) -> int:
    """Print the findings; return 1 if there are findings, or if there are no sources."""
    build = root / "build" / "tidy"
    calls = compiler_calls(root, build)
    if not calls:
        print(f"{build}/compile_commands.json has no source in {', '.join(FOLDERS)}")
        return 1
    shared = "\0".join([*COMMAND, versions()])
    key = partial(key_of, root, shared, calls)
    findings = check(stamps_folder(), calls, key, partial(tidy, build))
    drop_old(stamps_folder())
    print("".join(findings), end="")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
