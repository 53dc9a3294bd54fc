"""Runs clang-tidy over the engine and its bindings; not over tests, which take it twice as long.

A file is checked again when it or a header changed.
"""

import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "tidy"
FOLDERS = ("core", "bindings", "kernels")
TESTS = tuple(ROOT / name for name in ("core/test", "core/bench", "kernels/test"))


def headers() -> list[Path]:
    """The headers of our C++."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.h"))
    return sorted(path for path in found if path.parent not in TESTS)


def compiled_sources() -> list[Path]:
    """Writes the compilation database of engine and Python module; returns our sources."""
    defines = [
        "-DSLIPSTREAM_TESTS=OFF",
        "-DSLIPSTREAM_PYTHON=ON",
        f"-DPython_EXECUTABLE={sys.executable}",
    ]
    command = ["cmake", "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja", *defines]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    database = json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8"))
    ours = tuple(str(ROOT / folder) + os.sep for folder in FOLDERS)
    return sorted(Path(entry["file"]) for entry in database if entry["file"].startswith(ours))


def digest(paths: list[Path]) -> bytes:
    """One hash over the contents of the files."""
    total = hashlib.sha256()
    for path in paths:
        total.update(path.read_bytes())
    return total.digest()


def tidy(shared: bytes, source: Path) -> str:
    """What clang-tidy says about one file; empty when it passes or passed before unchanged."""
    key = hashlib.sha256(shared + digest([source])).hexdigest()
    stamp = BUILD / "passed" / key
    if stamp.exists():
        return ""
    command = ["clang-tidy", "-p", str(BUILD), "--quiet", str(source)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode == 0:
        stamp.touch()
        return ""
    return result.stdout or result.stderr


def main() -> int:
    """Prints the findings; returns 1 when there are any."""
    sources = compiled_sources()
    (BUILD / "passed").mkdir(exist_ok=True)
    shared = digest([ROOT / ".clang-tidy", *headers()])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        findings = list(pool.map(partial(tidy, shared), sources))
    print("".join(findings), end="")
    return 1 if any(findings) else 0


if __name__ == "__main__":
    sys.exit(main())
