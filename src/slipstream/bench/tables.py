"""One style for all tables of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table


def make_table(
    title: str,
    *,
    words: Sequence[str] = (),
    numbers: Sequence[str] = (),
    caption: str | None = None,
    is_dense: bool = False,
) -> Table:
    """Return a table without rows, in the style of the benchmarks.

    Args:
        title: Text above the table.
        words: Headings of the text columns. The text columns come first, are aligned to the left
            and may wrap.
        numbers: Headings of the number columns, which are aligned to the right.
        caption: Text below the table (default none).
        is_dense: Whether columns are separated by one space instead of two (default False).
    """
    table = Table(
        box=box.SIMPLE_HEAD,
        collapse_padding=is_dense,
        title=title,
        title_justify="left",
        caption=caption,
        caption_justify="left",
    )
    for heading in words:
        table.add_column(heading)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def yes_or_no(holds: bool) -> str:
    """Return the text of a cell that says whether a target is met."""
    return "yes" if holds else "no"


def not_run(missing: Mapping[str, str]) -> str:
    """Return a sentence that says which peers were not run, and why; "" if all were run.

    Args:
        missing: Peers that were not run, each with the reason.
    """
    if not missing:
        return ""
    reasons = dict.fromkeys(missing.values())
    parts = [
        f"{', '.join(peer for peer in missing if missing[peer] == reason)} ({reason})"
        for reason in reasons
    ]
    return f" Not run: {'; '.join(parts)}."
