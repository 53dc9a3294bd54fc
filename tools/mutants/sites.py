"""A site: a place in a source text, and the text that replaces it in a mutant."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Site:
    """A small change of a text.

    Args:
        start: Offset of the first replaced character.
        end: Offset after the last replaced character.
        new: Text that replaces the characters from `start` to `end`.
        operator: Name of the kind of change.
    """

    start: int
    end: int
    new: str
    operator: str


@dataclass(frozen=True)
class Change:
    """Lines of a source file in their original and in their changed form.

    Args:
        line: Number of the first changed line, counted from 1.
        before: Original lines.
        after: Changed lines.
    """

    line: int
    before: str
    after: str


def change_of(text: str, site: Site) -> Change:
    """Return the whole lines that a site changes."""
    first = text.rfind("\n", 0, site.start) + 1
    last = text.find("\n", site.end)
    last = len(text) if last < 0 else last
    after = text[first : site.start] + site.new + text[site.end : last]
    return Change(text.count("\n", 0, first) + 1, text[first:last], after)


def apply(text: str, change: Change) -> str:
    """Return a text with a change applied.

    Raises:
        ValueError: the text does not have the lines that the change replaces.
    """
    lines = text.split("\n")
    count = change.before.count("\n") + 1
    start = change.line - 1
    if "\n".join(lines[start : start + count]) != change.before:
        raise ValueError(f"line {change.line} has changed since the mutant was drawn: draw again")
    return "\n".join([*lines[:start], change.after, *lines[start + count :]])
