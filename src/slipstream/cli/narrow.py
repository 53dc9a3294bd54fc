"""Tables on narrow terminals: a table's columns wrap between words, or its rows become a list."""

from __future__ import annotations

from typing import Any

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Column, Table

# Spaces around a cell: top, right, bottom, left. Most boxes add a space between columns.
PADDINGS = ((0, 1, 0, 0), (0, 0, 0, 0))
# Number of terminal columns in which every table has its natural width.
UNBOUNDED_COLUMNS = 2000


class FittingConsole(Console):
    """A console on which tables break no words, however narrow the terminal is."""

    def print(self, *objects: Any, **settings: Any) -> None:
        """Print texts and tables."""
        parts = [fitted(part, self) if isinstance(part, Table) else part for part in objects]
        super().print(*parts, **settings)


def fitted(table: Table, console: Console) -> RenderableType:
    """Return a table that is narrow enough for a console; if none is, its rows as paragraphs.

    If a table is too wide, the spaces between its columns are removed first; then columns wrap
    between words, the widest columns first.
    """
    paddings = iter(PADDINGS if table.box else ())
    while (surplus := _natural_width(table, console) - console.width) > 0:
        padding = next(paddings, None)
        if padding is None:
            return _wrapped(table, surplus, console)
        table.padding = padding
    return table


def _wrapped(table: Table, surplus: int, console: Console) -> RenderableType:
    """Return a table that is narrower by `surplus` characters, or its rows as paragraphs."""
    ranges = [_range_of(column, console) for column in table.columns]
    widths = [most for _, most in ranges]
    for _ in range(surplus):
        widest = max(
            range(len(widths)), key=lambda at: widths[at] if widths[at] > ranges[at][0] else 0
        )
        if widths[widest] == ranges[widest][0]:
            return _as_list(table)
        widths[widest] -= 1
    for column, width in zip(table.columns, widths, strict=True):
        column.width, column.no_wrap = width, False
    return table


def _natural_width(table: Table, console: Console) -> int:
    unbounded = console.options.update(max_width=UNBOUNDED_COLUMNS)
    return Measurement.get(console, unbounded, table).maximum


def _range_of(column: Column, console: Console) -> tuple[int, int]:
    """Return the width of the longest word in a column, and that of the longest cell in it."""
    if column.width is not None:
        return column.width, column.width
    options = console.options.update(max_width=UNBOUNDED_COLUMNS)
    cells = [Measurement.get(console, options, cell) for cell in (column.header, *column.cells)]
    least, most = (max(sizes) for sizes in zip(*cells, strict=True))
    return least, most


def _as_list(table: Table) -> Group:
    """Return the rows of a table as paragraphs, with the heading in front of each cell."""
    parts: list[RenderableType] = [table.title] if table.title else []
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        pairs = Table.grid(padding=(0, 1))
        for column, cell in zip(table.columns, cells, strict=True):
            if cell:
                pairs.add_row(_label(column), cell)
        parts += [pairs, ""]
    if table.caption:
        parts.append(table.caption)
    return Group(*parts)


def _label(column: Column) -> RenderableType:
    """Return the heading of a column in one line."""
    return " ".join(column.header.split()) if isinstance(column.header, str) else column.header
