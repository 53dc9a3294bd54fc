"""`slipstream explain`: one account of a fault, from the flight records of all ranks."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.options import AsJson
from slipstream.cli.output import emit

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream explain slipstream-flight/train-20261128-150712
  slipstream explain records --json

`slipstream run` prints the folder when a job fails. Under another launcher, set
SLIPSTREAM_FLIGHT_DIR on all ranks, and collect the files of all hosts in one folder.

[bold]Exit code[/bold]: 2 if the folder has no flight record.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("explain", epilog=EXAMPLES)(explain)


def explain(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder with the records of all ranks.")
    ],
    as_json: AsJson = False,
) -> None:
    """Explain a fault: who failed first, where every rank was, and what to do."""
    from slipstream.flight import account, report

    explained = account.explain(folder)
    emit(asdict(explained), report.screen(explained), as_json=as_json)
