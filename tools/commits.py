"""The number of a commit, by which tests and sanitizers choose what is their turn."""

import subprocess
from pathlib import Path


def number(root: Path) -> int:
    """Return how many commits lead to the one that is checked out; 0 without git.

    A shallow clone cannot count them: the number is then drawn from the commit's hash.

    Args:
        root: a folder of the checkout.
    """
    if _git(root, "rev-parse", "--is-shallow-repository") == "true":
        return int(_git(root, "rev-parse", "HEAD")[:8], 16)
    return int(_git(root, "rev-list", "--count", "HEAD") or 0)


def _git(root: Path, *arguments: str) -> str:
    """Return what git prints; nothing where it fails."""
    asked = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    return asked.stdout.strip() if asked.returncode == 0 else ""
