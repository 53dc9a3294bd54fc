"""The account of a fault as tables and texts for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slipstream.flight.account import Account, AccountRow
from slipstream.flight.facts import ranks_in_words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

_MOST_ROWS = 64
_FAULT_STYLE = "bold red"


def screen(account: Account) -> list[RenderableType]:
    """Return the parts of an account in the order in which a person reads them."""
    parts: list[RenderableType] = [_shown(account.headline, style="bold")]
    parts += [_shown(f"  {line}") for line in account.details]
    parts += [_shown(""), _table(account)]
    parts += _section("How the others learned of it", account.notices)
    parts += _section("Who went on", account.survived)
    parts += _section("Differences", account.differences)
    parts += _section("What to do", account.advice)
    parts += _section("What else happened to this job", account.others)
    parts += _section("Unreadable files", account.problems)
    return parts


def _section(title: str, lines: Iterable[str]) -> list[RenderableType]:
    listed = [_shown(f"  - {line}") for line in lines]
    return [_shown(""), _shown(title, style="bold"), *listed] if listed else []


def _shown(text: str, style: str = "") -> Text:
    """Return a text of records, in which a terminal finds neither markup nor commands."""
    from rich.text import Text

    shown = (
        letter if letter.isprintable() or letter == "\n" else repr(letter)[1:-1] for letter in text
    )
    return Text("".join(shown), style=style)


def _table(account: Account) -> Table:
    """Return the table of ranks; in a large job, the ranks at fault come first."""
    from rich.table import Table

    table = Table("rank", "host", "process", "end", "last finished", "waiting in", "for", "at")
    rows = sorted(account.rows, key=lambda row: row.rank not in account.ranks_at_fault)
    rows = account.rows if len(rows) <= _MOST_ROWS else rows[:_MOST_ROWS]
    for row in rows:
        at_fault = row.rank in account.ranks_at_fault
        table.add_row(*map(_shown, _cells(row)), style=_FAULT_STYLE if at_fault else "")
    more = len(account.rows) - len(rows)
    if more:
        table.caption = f"and {more} more ranks; --json has all of them"
    return table


def _cells(row: AccountRow) -> tuple[str, ...]:
    return (
        str(row.rank),
        row.host,
        "" if row.pid is None else str(row.pid),
        row.end,
        row.finished,
        row.waiting,
        ranks_in_words(row.waits_for) if row.waits_for else "",
        row.place,
    )
