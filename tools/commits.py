"""The number of a commit, by which tests and sanitizers choose what is their turn."""

import hashlib
import subprocess
import sys
from collections.abc import Iterable
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


def turn(names: Iterable[str], number: int, shares: int) -> list[str]:
    """Return one of so many shares of the names; those of as many successive numbers are all.

    The share is rounded up, and the names are in the order of their hashes.
    """
    ordered = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    size = -(-len(ordered) // shares)
    first = number % shares * size
    return [ordered[place % len(ordered)] for place in range(first, first + size)]
