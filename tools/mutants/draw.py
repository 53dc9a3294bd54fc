"""Random selection of mutants; the same seed and sources always give the same mutants."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from .cpp_sites import cpp_sites
from .parts import PARTS
from .python_sites import python_sites
from .sites import Change, change_of

AT_LEAST = 3  # smallest number of mutants of each part


@dataclass
class Mutant:
    """A change of one source file, and the outcome of its tests.

    Args:
        id: Number of the mutant.
        part: Name of the part of the source, from `PARTS`.
        file: Path of the source file.
        line: Number of the first changed line, counted from 1.
        operator: Name of the kind of change.
        before: Original lines.
        after: Changed lines.
        outcome: Outcome, as defined in results.py; "" before any test has run.
        test: Name of the first failed test; "" if none failed.
        seconds: Time in seconds until a test failed, or until all tests passed.
        why: Reason why no test can kill the mutant, if it is equivalent to the original.
        commit: Commit at which the tests ran.
        reached: Folders whose tests reach the mutant (see reach.py); None if this is not known.
    """

    id: int
    part: str
    file: str
    line: int
    operator: str
    before: str
    after: str
    outcome: str = ""
    test: str = ""
    seconds: float = 0.0
    why: str = ""
    commit: str = ""
    reached: list[str] | None = None

    @property
    def change(self) -> Change:
        """Changed lines of the source file."""
        return Change(self.line, self.before, self.after)


@lru_cache
def order(root: Path, seed: int, part: str) -> list[Mutant]:
    """Return all possible mutants of a part, in the order in which they are drawn."""
    found: list[Mutant] = []
    for file in PARTS[part].files(root):
        text = (root / file).read_text(encoding="utf-8")
        for site in (cpp_sites if PARTS[part].is_cpp else python_sites)(text):
            change = change_of(text, site)
            found.append(
                Mutant(
                    *(0, part, str(file), change.line, site.operator),
                    *(change.before, change.after),
                )
            )
    random.Random(f"{seed} {part}").shuffle(found)
    return found


def next_mutant(root: Path, seed: int, part: str, drawn: Iterable[Mutant]) -> Mutant:
    """Return the first mutant of a part that is not in `drawn`, with a new id."""
    known = list(drawn)
    changes = {(mutant.file, mutant.line, mutant.after) for mutant in known}
    for mutant in order(root, seed, part):
        if (mutant.file, mutant.line, mutant.after) not in changes:
            return replace(mutant, id=max((other.id for other in known), default=0) + 1)
    raise LookupError(f"{part} has no more mutants")


def parts_drawn(root: Path, seed: int, count: int) -> Iterator[str]:
    """Yield, for each mutant to draw, the name of the part of the source it comes from.

    First, each part is named `AT_LEAST` times, in turn. Then parts are drawn at random, weighted by
    their lines of code.
    """
    in_turn = [*PARTS] * AT_LEAST
    yield from in_turn[:count]
    weights = [lines_of_code(root, part) for part in PARTS]
    chance = random.Random(seed)
    yield from chance.choices([*PARTS], weights, k=max(0, count - len(in_turn)))


def lines_of_code(root: Path, part: str) -> int:
    """Return the number of lines in a part that are not empty."""
    texts = ((root / file).read_text(encoding="utf-8") for file in PARTS[part].files(root))
    return sum(bool(line.strip()) for text in texts for line in text.splitlines())


def draw(root: Path, seed: int, count: int) -> list[Mutant]:
    """Return the mutants that are drawn with a seed."""
    drawn: list[Mutant] = []
    for part in parts_drawn(root, seed, count):
        drawn.append(next_mutant(root, seed, part, drawn))
    return drawn
