"""Output of commands: results on stdout or in files, and remarks on stderr."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rich.console import Console, RenderableType
    from rich.text import Text

# Columns of an output that is not a terminal: more than any table has, so that no cell is wrapped.
UNBOUNDED_COLUMNS = 2000


def make_console(stream: TextIO) -> Console:
    """Return a console that writes to a stream.

    If colours are turned off, the console writes no bold and dim text either. Its width is COLUMNS
    if this variable is set, else the width of the terminal. Without a terminal and without COLUMNS,
    the console does not wrap lines.
    """
    from slipstream.cli.narrow import FittingConsole

    plain = FittingConsole(file=stream).no_color
    console = FittingConsole(file=stream, highlight=False, color_system=None if plain else "auto")
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = UNBOUNDED_COLUMNS
    return console


def stdout_console() -> Console:
    """Return the console for results."""
    return make_console(sys.stdout)


def stderr_console() -> Console:
    """Return the console for remarks and progress."""
    return make_console(sys.stderr)


def emit(
    result: Any,
    shown: Iterable[RenderableType],
    *,
    as_json: bool,
    output: Path | None = None,
    notes: Iterable[str] = (),
) -> None:
    """Print a result as JSON or as tables; if a file is given, also write the result there.

    Args:
        result: Result made of lists, dictionaries, texts and numbers; a number that is not finite
            becomes null.
        shown: Tables and texts that show the result to people.
        as_json: Whether to print JSON on stdout in place of tables.
        output: File to which the result is written as JSON (default None: no file).
        notes: Sentences to print on stderr, such as the reason why a peer is not measured (default
            none).
    """
    for note in notes:
        remark(note)
    if as_json:
        print(as_text(result), end="")
    else:
        show(shown)
    if output is not None:
        write_file(output, as_text(result))


def show(parts: Iterable[RenderableType], console: Console | None = None) -> None:
    """Print tables and texts on a console (default stdout)."""
    console = console or stdout_console()
    for part in parts:
        if isinstance(part, str):
            console.print(part, markup=False)
        else:
            console.print(part)


def caption_text(text: str) -> Text:
    """Return a caption as dim text, to be shown below a table."""
    from rich.text import Text

    return Text(text, style="dim")


def remark(text: str, style: str = "dim") -> None:
    """Print a sentence on stderr, in a style of Rich (default dim)."""
    stderr_console().print(text, style=style, markup=False, soft_wrap=True)


def write_file(path: Path, text: str) -> None:
    """Write a file in an existing folder (see `check_output_file`), and name it on stderr."""
    path.write_text(text, encoding="utf-8")
    written(path)


def written(path: Path) -> None:
    """Print on stderr that a file has been written."""
    remark(f"written: {path}", style="")


def as_text(result: Any) -> str:
    """Return a result as standard JSON text, in which NaN and infinities become null."""
    try:
        return json.dumps(result, indent=1, allow_nan=False) + "\n"
    except ValueError:
        finite = json.loads(json.dumps(result), parse_constant=lambda _: None)
        return json.dumps(finite, indent=1) + "\n"
