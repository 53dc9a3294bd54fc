"""Builds the library of the test device and prints its path; a second build takes little time."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / "build" / "teststream"
PYTHON = f"-DPython_EXECUTABLE={sys.executable}"


def build() -> Path:
    """Build the library, one process at a time, and return its path."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_configured():
            options = ["-DSLIPSTREAM_TORCH_DEVICE=ON", "-DSLIPSTREAM_TESTS=OFF", PYTHON]
            _run("cmake", "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja", *options)
        _run("cmake", "--build", str(BUILD), "--target", "teststream")
    return BUILD / "tests/torch/device/libteststream.so"


def _is_configured() -> bool:
    """Return whether an earlier build had this Python; Ninja itself sees what changed since."""
    if not (BUILD / "build.ninja").is_file():
        return False
    lines = (BUILD / "CMakeCache.txt").read_text().splitlines()
    return any(
        line.startswith("Python_EXECUTABLE:") and line.endswith(f"={sys.executable}")
        for line in lines
    )


def _run(*command: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
    )
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} failed:\n{done.stdout[-4000:]}{done.stderr[-2000:]}"
        )


if __name__ == "__main__":
    print(build())
