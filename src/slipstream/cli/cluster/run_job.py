"""`slipstream run job.yaml`: run the job of a file on any engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.groups import CommandLine

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream run job.yaml                   on the engine that the job names
  slipstream run job.yaml --on ssh --set 'ssh.hosts=[a,b]' --set hosts=2
  slipstream run job.yaml --detach
"""

SUFFIXES = (".yaml", ".yml")


def is_job_file(program: Sequence[str]) -> bool:
    """Return whether the program of `slipstream run` is a job file."""
    return program[0].endswith(SUFFIXES)


def run_job(path: Path, arguments: Sequence[str], *, as_json: bool = False) -> int:
    """Run the job of a file; return its exit code.

    Args:
        path: Path of the job file.
        arguments: Arguments after it on the command line.
        as_json: Whether events are printed as JSON (default False).
    """
    command = typer.main.get_command(_make_app(path, as_json))
    return int(command.main(list(arguments), f"slipstream run {path}", standalone_mode=False) or 0)


def _make_app(path: Path, printed_as_json: bool) -> typer.Typer:
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
        detach: Annotated[
            bool, typer.Option("--detach", help="Return when the job has started.")
        ] = False,
        yes: Annotated[
            bool, typer.Option("--yes", "-y", help="Create machines without asking for the cost.")
        ] = False,
        as_json: Annotated[
            bool, typer.Option("--json", help="Print one JSON event per line.")
        ] = False,
    ) -> int:
        """Run the job of a file; a run that goes on under its name is followed again."""
        overrides = list(assignments or [])
        overrides += [f"on={on}"] if on else []
        overrides += [f"name={name}"] if name else []
        as_json = as_json or printed_as_json
        return _run(path, overrides, detach=detach, yes=yes, as_json=as_json)

    return app


def _run(path: Path, overrides: list[str], *, detach: bool, yes: bool, as_json: bool) -> int:
    from slipstream.cli.cluster.cost import confirm_cost
    from slipstream.cli.cluster.view import JsonView, TerminalView
    from slipstream.cluster.control.session import RunSession
    from slipstream.cluster.spec import read_job
    from slipstream.settings import home_folder

    spec = read_job(path, overrides)
    view = JsonView() if as_json else TerminalView()
    base = path.absolute().parent
    confirm = None if yes else confirm_cost
    controller = RunSession(home_folder()).submit(spec, base, view, confirm)
    controller.start()
    if detach:
        view.note(f"the run goes on; follow it: slipstream cluster attach {spec.name}")
        return 0
    return controller.follow()
