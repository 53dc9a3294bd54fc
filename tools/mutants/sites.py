"""A place in a source text where a mutant differs, and what stands there instead."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Site:
    """One small change of a text.

    Args:
        start: Offset of the first character that is replaced.
        end: Offset behind the last one.
        new: Text that stands there in the mutant.
        operator: Name of the kind of change.
    """

    start: int
    end: int
    new: str
    operator: str


@dataclass(frozen=True)
class Change:
    """Whole lines before and after a change; `line` counts from 1."""

    line: int
    before: str
    after: str


def change_of(text: str, site: Site) -> Change:
    """Return the lines that a site touches, before and after."""
    first = text.rfind("\n", 0, site.start) + 1
    last = text.find("\n", site.end)
    last = len(text) if last < 0 else last
    after = text[first : site.start] + site.new + text[site.end : last]
    return Change(text.count("\n", 0, first) + 1, text[first:last], after)


def apply(text: str, change: Change) -> str:
    """Return the text with the change; ValueError if other lines stand there."""
    lines = text.split("\n")
    count = change.before.count("\n") + 1
    start = change.line - 1
    if "\n".join(lines[start : start + count]) != change.before:
        raise ValueError(f"line {change.line} is not what the mutant was drawn from: draw again")
    return "\n".join([*lines[:start], change.after, *lines[start + count :]])
