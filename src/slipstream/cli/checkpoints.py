"""`slipstream checkpoints`: the checkpoints in a folder, whole or not, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from slipstream.cli.options import AsJson
from slipstream.cli.output import emit

if TYPE_CHECKING:
    from rich.table import Table

    from slipstream.train.checkpoint import Checkpoint

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream checkpoints checkpoints
  slipstream checkpoints checkpoints --verify     also reads all files
  slipstream checkpoints s3://bucket/run7 --json

[bold]Exit code[/bold]: 1 if no checkpoint is whole, 2 for wrong usage.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("checkpoints", epilog=EXAMPLES)(checkpoints)


def checkpoints(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="Folder or URL of the checkpoints.")
    ],
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all files and compare their checksums.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the checkpoints of a training: which are whole, and why the others are not."""
    from slipstream.train.checkpoint import list_checkpoints, open_storage

    found = list_checkpoints(open_storage(folder), verify=verify)
    emit([_entry(checkpoint) for checkpoint in found], [_table(found)], as_json=as_json)
    raise typer.Exit(int(not any(checkpoint.is_whole for checkpoint in found)))


def _entry(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "step": checkpoint.step,
        "folder": checkpoint.folder,
        "whole": checkpoint.is_whole,
        "problem": checkpoint.problem,
        "num_bytes": checkpoint.num_bytes,
        "num_ranks": checkpoint.num_ranks,
        "time": checkpoint.time,
    }


def _table(found: list[Checkpoint]) -> Table:
    from datetime import datetime

    from rich.table import Table
    from rich.text import Text

    from slipstream.units import format_bytes

    table = Table("step", "saved", "ranks", "size", "state")
    for checkpoint in found:
        has_manifest = checkpoint.num_ranks > 0
        saved = datetime.fromtimestamp(checkpoint.time).astimezone()
        table.add_row(
            str(checkpoint.step),
            f"{saved:%Y-%m-%d %H:%M:%S}" if has_manifest else "-",
            str(checkpoint.num_ranks) if has_manifest else "-",
            format_bytes(checkpoint.num_bytes) if has_manifest else "-",
            Text(checkpoint.problem or "whole"),  # paths may look like markup
        )
    return table
