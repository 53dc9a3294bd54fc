"""The first load of a package, in a process that knows nothing of how it was made.

    python -m slipstream.infer.package.first_load model.slip

loads it and runs its example, and ends with 1 and a line that says why where that fails.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from slipstream.errors import SlipstreamError, UnsupportedError


def try_package(path: Path) -> None:
    """Load a package and call it once, in a fresh process. Blocks.

    Raises UnsupportedError where that fails: whoever compiles hears of it, not whoever loads.
    """
    command = [sys.executable, "-m", "slipstream.infer.package.first_load", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        raise UnsupportedError(
            f"the package cannot be loaded, which is an error of Slipstream: {lines[-1]}"
        )


def main(path: Path) -> None:
    """Load the package and run its example; what it gives is held against what it gave before."""
    from slipstream.infer.run.session import load

    try:
        with load(path):
            pass
    except SlipstreamError as error:
        sys.exit(str(error).replace("\n", " "))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
