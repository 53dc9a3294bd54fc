"""`slipstream run --dry-run`: print what an engine would be given for a job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.output import remark

if TYPE_CHECKING:
    from slipstream.cluster.spec import JobSpec

DryRunOption = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        rich_help_panel="Engines",
        help="Print what the engine would be given, such as manifests; change nothing.",
    ),
]


def show_dry_run(spec: JobSpec, base: Path, *, as_json: bool) -> None:
    """Print the manifests, the batch script or the fields of a job; nothing is created.

    Args:
        spec: Description of the job.
        base: Folder to which its paths are relative.
        as_json: Whether JSON is printed.

    Raises:
        UsageError: the engine cannot run the job.
    """
    import yaml

    from slipstream.cli.cluster.cost import describe
    from slipstream.cluster.control.dry_run import write_run
    from slipstream.cluster.control.session import DEFAULT_DEADLINE_SECONDS
    from slipstream.settings import home_folder

    written = write_run(spec, base, home_folder(), DEFAULT_DEADLINE_SECONDS)
    cost = "" if written.estimate is None else describe(written.estimate)
    if as_json:
        fields = {
            "job": written.job,
            "manifests": written.manifests,
            "script": written.script,
            "cost": cost,
        }
        print(json.dumps({name: value for name, value in fields.items() if value}))
        return
    if written.manifests:
        print(yaml.safe_dump_all(written.manifests, sort_keys=False), end="")
        remark("the data of the Secret is hidden, so these manifests cannot be applied as they are")
    elif written.script:
        print(written.script, end="")
    else:
        print(yaml.safe_dump(dict(written.job), sort_keys=False), end="")
    if cost:
        remark(f"it would create {cost}")
