"""Selection of the tests and sanitizer runs of a commit, by the commit's number.

Each commit runs only a share of all tests; consecutive commits run different shares.
"""

import hashlib
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path


def number(root: Path) -> int:
    """Return the number of commits up to HEAD; 0 outside a checkout.

    A shallow clone cannot count its commits, so the number is derived from the hash of HEAD. If git
    refuses to run, as it does in a folder of another user, the process ends with git's message.

    Args:
        root: Folder of the checkout.
    """
    if not (root / ".git").exists():
        return 0
    if _git(root, "rev-parse", "--is-shallow-repository") == "true":
        return int(_git(root, "rev-parse", "HEAD")[:8], 16)
    return int(_git(root, "rev-list", "--count", "HEAD"))


def _git(root: Path, *arguments: str) -> str:
    ended = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"git {' '.join(arguments)} in {root}: {ended.stderr.strip()}")
    return ended.stdout.strip()


def turn(names: Iterable[str], number: int, shares: int) -> list[str]:
    """Return one share of the names: the share with index `number` modulo `shares`.

    The names are sorted by their hashes and divided into `shares` parts of equal size. The size is
    rounded up, so some names may be in two parts. Any `shares` consecutive numbers together select
    every name.
    """
    ordered = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    size = -(-len(ordered) // shares)
    first = number % shares * size
    return [ordered[index % len(ordered)] for index in range(first, first + size)]


def share(named: str, root: Path) -> str:
    """Return the chosen share of the tests: "all" or a number; "commit" means HEAD's number."""
    return str(number(root)) if named == "commit" else named


if __name__ == "__main__":
    print(share(sys.argv[1], Path.cwd()))
