"""The commands that README and docs show, and claims that a test runs a command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from itertools import pairwise, takewhile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def shown_commands(*pages: Path) -> list[str]:
    """Return the command lines of pages, sorted, without duplicates and comments."""
    commands: set[str] = set()
    for page in pages:
        for block in re.findall(r"```(?:sh|console)\n(.*?)```", page.read_text(), re.DOTALL):
            lines = [line.removeprefix("$ ").split(" #")[0].strip() for line in block.splitlines()]
            commands |= {line for line in lines if line}
    return sorted(commands)


def wrong_claims(claims: Mapping[str, str]) -> list[str]:
    """Return the errors in claims that a test runs a command.

    Args:
        claims: Files, or FILE::TEST, by command. The file must have the test, and the words of the
            command that say what it does: the program, its sub-commands and its options.
    """
    errors: list[str] = []
    for command, claim in claims.items():
        name, _, test = claim.partition("::")
        text = (ROOT / name).read_text() if (ROOT / name).exists() else ""
        parts = [*([f"def {test}("] if test else []), *significant_words(command)]
        errors += [f"{command}: {name} has no {part}" for part in parts if part not in text]
    return errors


def significant_words(command: str) -> list[str]:
    """Return the program, its sub-commands and its options, without files and values."""
    words = shlex.split(command)
    names = list(takewhile(lambda word: re.fullmatch("[a-z]+", word), words))
    modules = [word for before, word in pairwise(words) if before == "-m"]
    options = [word.partition("=")[0] for word in words if word.startswith("-")]
    return [*names, *modules, *options]
