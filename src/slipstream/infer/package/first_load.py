"""Load a new package for the first time, not in the process that made it, but in a new process.

    python -m slipstream.infer.package.first_load model.slip DEVICE

The command loads the package and runs the package's example. If loading or running fails, the
command exits with the status 1 and writes the reason in one line.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from slipstream.errors import SlipstreamError, UnsupportedError


def try_package(path: Path, device: str = "auto") -> None:
    """Load a package and call it once, in a fresh process. Blocks.

    Args:
        path: File of the package.
        device: Device of the compilation; see `load` (default "auto").

    Raises:
        UnsupportedError: the package cannot be loaded. The error ends the compilation, so that no
            user gets a package that cannot be loaded.
    """
    command = [sys.executable, "-m", "slipstream.infer.package.first_load", str(path), device]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"it exited with {process.returncode}"]
        raise UnsupportedError(
            "the package was made and cannot be loaded, which is an error of Slipstream: "
            f"{lines[-1]}; choose another engine with --engines, and please report it"
        )


def main(path: Path, device: str) -> None:
    """Load the package and run its example; exit with an error if this fails."""
    from slipstream.infer.run.session import load

    try:
        with load(path, device=device):
            pass
    except SlipstreamError as error:
        sys.exit(str(error).replace("\n", " "))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
