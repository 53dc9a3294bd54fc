"""The number of a commit, by which tests and sanitizers choose what is their turn."""

import subprocess
import sys
from pathlib import Path


def number(root: Path) -> int:
    """Return how many commits lead to the one that is checked out; 0 outside of a checkout.

    A shallow clone cannot count them: the number is then drawn from the commit's hash. The process
    ends with git's message where git refuses, as it does in a folder of another user.

    Args:
        root: the folder of the checkout.
    """
    if not (root / ".git").exists():
        return 0
    if _git(root, "rev-parse", "--is-shallow-repository") == "true":
        return int(_git(root, "rev-parse", "HEAD")[:8], 16)
    return int(_git(root, "rev-list", "--count", "HEAD"))


def _git(root: Path, *arguments: str) -> str:
    asked = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    if asked.returncode != 0:
        sys.exit(f"git {' '.join(arguments)} in {root}: {asked.stderr.strip()}")
    return asked.stdout.strip()
