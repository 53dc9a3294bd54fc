"""`slipstream explain`: one account of a fault, from the flight records of all ranks."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.options import AsJson
from slipstream.cli.output import emit, remark

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream explain                     # the last job that failed here
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
        Path | None,
        typer.Argument(
            metavar="FOLDER",
            help="Folder with the records of all ranks; if it has folders of jobs, the newest job"
            " is explained.",
            show_default="that of SLIPSTREAM_FLIGHT_DIR, or slipstream-flight",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explain a fault: who failed first, where every rank was, and what to do."""
    from slipstream.flight import account, report
    from slipstream.flight.files import DEFAULT_FOLDER, job_folders
    from slipstream.settings import Settings

    if folder is None:
        folder = Settings.from_environment().flight_dir or Path(DEFAULT_FOLDER)
    if jobs := job_folders(folder):
        folder = jobs[-1]
        remark(f"{folder} is the newest of {len(jobs)} job{'s' * (len(jobs) > 1)}")
    explained = account.explain(folder)
    emit(asdict(explained), report.screen(explained), as_json=as_json)
