"""What all of `slipstream bench` does on the terminal and for programs."""

import json
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.table import Table

from slipstream.cli.lab import ending_on_signals
from slipstream.lab.display import make_console, stderr_console


@contextmanager
def telling(first: str = "the ranks start") -> Generator[Callable[[str], None]]:
    """Yield what shows, on a terminal, what is measured; a signal leaves no lab behind."""
    with ending_on_signals(), stderr_console().status(first) as status:
        yield status.update


def show(
    notes: Iterable[str], tables: Iterable[Table], caption: str, file: Path | None, content: Any
) -> None:
    """Print what disturbed a measurement, its tables and what they mean; write the JSON."""
    for note in notes:
        stderr_console().print(note, style="dim", markup=False)
    for table in tables:
        make_console(sys.stdout).print(table)
    make_console(sys.stdout).print(caption, style="dim", highlight=False)
    write(file, content)


def write(file: Path | None, content: Any) -> None:
    """Write what was measured as JSON where a file is given."""
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content, indent=1) + "\n")
