"""The number of commits, by which tests and sanitizers choose what is their turn."""

import subprocess
from pathlib import Path


def count(root: Path) -> int:
    """Return how many commits lead to the one that is checked out; 0 without git.

    Args:
        root: a folder of the checkout.
    """
    counted = subprocess.run(
        ["git", "rev-list", "--count", "HEAD"], cwd=root, capture_output=True, text=True
    )
    return int(counted.stdout) if counted.returncode == 0 else 0
