"""`slipstream run job.yaml`: run the job of a file on any engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.cluster.dry_run import DryRunOption, show_dry_run
from slipstream.cli.cluster.plan import chosen_plan, plan_entry, show_plan
from slipstream.cli.groups import CommandLine
from slipstream.cli.run_on import ChooseOption, PlanOption
from slipstream.errors import UsageError

if TYPE_CHECKING:
    from slipstream.cluster.spec import ForecastPlan, JobSpec

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream run job.yaml                   on the engine that the job names
  slipstream run job.yaml --on ssh --set 'ssh.hosts=[a,b]' --set hosts=2
  slipstream run job.yaml --detach
  slipstream run job.yaml --on k8s --dry-run    print the manifests only
"""

SUFFIXES = (".yaml", ".yml")


def is_job_file(program: Sequence[str]) -> bool:
    """Return whether the program of `slipstream run` is a job file."""
    return program[0].endswith(SUFFIXES)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunChoices:
    """The choices of a user about a run on an engine.

    Args:
        on: Engine in place of the job's own, or None.
        name: Name of the run, or None for that of the job.
        assignments: Fields of the job with other values, such as "hosts=2:4".
        detach: Whether the command returns when the job has started.
        yes: Whether machines are created without a question.
        dry_run: Whether it is only printed what the engine would be given.
        as_json: Whether events are printed as JSON.
        names_hosts: Whether hosts are named with -H or --hostfile.
        plan: Plan in place of the job's own, or None.
    """

    on: str | None
    name: str | None
    assignments: Sequence[str]
    detach: bool
    yes: bool
    dry_run: bool
    as_json: bool
    names_hosts: bool
    plan: ForecastPlan | None

    @property
    def overrides(self) -> list[str]:
        """Fields of the job with other values; engine, name and plan are included."""
        chosen = [f"on={self.on}"] if self.on else []
        chosen += [f"name={self.name}"] if self.name else []
        chosen += ['plan=""'] if self.plan else []
        return [*self.assignments, *chosen]


def run_job(path: Path, arguments: Sequence[str], before: RunChoices) -> int:
    """Run the job of a file; return its exit code.

    Args:
        path: Path of the job file.
        arguments: Arguments after it on the command line.
        before: Choices before it on the command line, over which those after it prevail.
    """
    command = typer.main.get_command(_make_app(path, before))
    return int(command.main(list(arguments), f"slipstream run {path}", standalone_mode=False) or 0)


def _make_app(path: Path, before: RunChoices) -> typer.Typer:
    app = CommandLine(add_completion=False)

    @app.command(epilog=EXAMPLES)
    def job(  # pyright: ignore[reportUnusedFunction]
        on: Annotated[
            str | None, typer.Option(metavar="ENGINE", help="Engine in place of the job's own.")
        ] = None,
        name: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the run.")] = None,
        assignments: Annotated[
            list[str] | None,
            typer.Option(
                "--set",
                metavar="FIELD=VALUE",
                help="Value of a field of the job, such as hosts=2:4; may be repeated.",
            ),
        ] = None,
        plan: PlanOption = None,
        choose: ChooseOption = None,
        detach: Annotated[
            bool, typer.Option("--detach", help="Return when the job has started.")
        ] = False,
        yes: Annotated[
            bool, typer.Option("--yes", "-y", help="Create machines without asking for the cost.")
        ] = False,
        dry_run: DryRunOption = False,
        as_json: Annotated[
            bool, typer.Option("--json", help="Print one JSON event per line.")
        ] = False,
    ) -> int:
        """Run the job of a file; a run that goes on under its name is followed again."""
        choices = RunChoices(
            on=on or before.on,
            name=name or before.name,
            assignments=(*before.assignments, *(assignments or ())),
            detach=detach or before.detach,
            yes=yes or before.yes,
            dry_run=dry_run or before.dry_run,
            as_json=as_json or before.as_json,
            names_hosts=before.names_hosts,
            plan=chosen_plan(plan, choose) or before.plan,
        )
        from slipstream.cluster.spec import read_job

        spec = read_job(path, choices.overrides)
        return run_spec(spec, path.absolute().parent, choices)

    return app


def run_spec(spec: JobSpec, base: Path, choices: RunChoices) -> int:
    """Run a job on its engine and follow it; return its exit code.

    Args:
        spec: Description of the job.
        base: Folder to which its paths are relative.
        choices: Choices of the user.

    Raises:
        UsageError: hosts are named for an engine that finds its hosts itself.
    """
    from slipstream.cluster.spec import check_place, fill_job, read_plan_file

    plan = choices.plan or (read_plan_file(base / spec.plan) if spec.plan else None)
    if plan is not None:
        spec = fill_job(spec, plan)
        check_place(spec, plan)
    if choices.names_hosts and spec.on != "ssh":
        raise UsageError(
            f"hosts are named with -H or --hostfile, and the engine is {spec.on}; say --on ssh, or"
            " --set hosts=2 for a number of hosts"
        )
    if choices.dry_run:
        show_dry_run(spec, base, as_json=choices.as_json)
        return 0
    from slipstream.cli.cluster.cost import confirm_cost
    from slipstream.cli.cluster.view import JsonView, TerminalView
    from slipstream.cluster.control.session import RunSession
    from slipstream.settings import home_folder

    view = JsonView() if choices.as_json else TerminalView()
    if plan is not None and choices.as_json:
        view.entry(plan_entry(spec, plan))
    elif plan is not None:
        show_plan(spec, plan)
    confirm = None if choices.yes else confirm_cost
    controller = RunSession(home_folder()).submit(spec, base, view, confirm, plan)
    controller.start()
    if choices.detach:
        view.note(f"the run goes on; follow it: slipstream cluster attach {spec.name}")
        return 0
    return controller.follow()
