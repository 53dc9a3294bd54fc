"""Compare generated files that are under version control with newly generated files.

If the engine's Python API or a setting changes, a generated file changes, too, and a review shows
the change.
"""

import argparse
import difflib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parent.parent


def output_of(*command: str) -> str:
    """Run the current Python interpreter with some arguments; return its standard output."""
    return subprocess.run(
        [sys.executable, *command], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ).stdout


def stub(module: str) -> str:
    """Return the type stub of a native module."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stub.pyi"
        output_of("-m", "nanobind.stubgen", "-q", "-m", module, "-o", str(file))
        return file.read_text(encoding="utf-8")


def settings_page() -> str:
    """Return the documentation page of the environment variables."""
    return output_of("-m", "slipstream.settings")


GOLDEN: dict[str, Callable[[], str]] = {
    "src/slipstream/_core.pyi": partial(stub, "slipstream._core"),
    "src/slipstream/_kernels.pyi": partial(stub, "slipstream._kernels"),
    "docs/settings.md": settings_page,
}


def main() -> int:
    """Return 1 if a generated file differs; with --write, write the files instead."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the files")
    write = parser.parse_args().write
    differ = False
    for name, generate in GOLDEN.items():
        path, new = ROOT / name, generate()
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(new, encoding="utf-8")
        elif old != new:
            differ = True
            lines = difflib.unified_diff(old.splitlines(), new.splitlines(), name, "generated now")
            print("\n".join(lines), file=sys.stderr)
            print(f"{name} differs from the generated file: run make golden", file=sys.stderr)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
