"""`slipstream run`: start the ranks of a program here or on other hosts."""

import os
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from slipstream.cluster import Host, Job, launch, parse_hosts
from slipstream.cluster.display import JsonDisplay, TerminalDisplay
from slipstream.errors import UsageError

# A line of \b keeps the line ends of its paragraph.
EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream run -n 2 train.py --lr 0.1     two ranks on this host
  slipstream run -H a:2,b:2 train.py        two on each of two hosts, by ssh
  slipstream run -n 4 -m package.train      a module
  slipstream run -n 2 ./program             any program
  slipstream run -n 2 --tty train.py        rank 0 draws on the terminal
  slipstream run -H a:8 --ssh-option Port=2222 --env DATA=/data train.py

\b
Each rank gets the variables of torchrun (RANK, WORLD_SIZE, LOCAL_RANK,
MASTER_ADDR, MASTER_PORT) and the key of the job. When one fails, the others end.
[bold]Exit code[/bold]: that of the rank that failed first, 128 + n if signal n ended it;
1 if a host failed; 2 for wrong usage.
"""


class OutputChoice(str, Enum):
    """Whose output is shown."""

    ALL = "all"
    RANK0 = "rank0"
    FAILED = "failed"


def add_to(app: typer.Typer) -> None:
    """Make this a sub-command of `app`."""
    settings = {"allow_interspersed_args": False}
    app.command("run", context_settings=settings, epilog=EXAMPLES)(run)


def run(
    program: Annotated[
        list[str],
        typer.Argument(help="A .py file, a module with -m, or any program; then its arguments."),
    ],
    num_ranks: Annotated[
        int | None,
        typer.Option("-n", "--nproc-per-node", min=1, help="Ranks on this host, or on each of -H."),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option("-H", "--hosts", help="Hosts and their ranks: a:2,me@b:4."),
    ] = None,
    module: Annotated[
        bool, typer.Option("-m", "--module", help="The program is a Python module.")
    ] = False,
    output: Annotated[
        OutputChoice, typer.Option(help="Whose output is shown as it comes.")
    ] = OutputChoice.ALL,
    tty: Annotated[
        bool,
        typer.Option("--tty", help="Rank 0 writes on this terminal itself; others stay silent."),
    ] = False,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds from SIGTERM to SIGKILL when ranks are ended.")
    ] = 3.0,
    env: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE for every rank, or NAME to take it from here."),
    ] = None,
    python: Annotated[
        str | None, typer.Option(help="Python on the other hosts; default: the same path as here.")
    ] = None,
    cwd: Annotated[
        Path | None, typer.Option(help="Directory on every host; default: the same as here.")
    ] = None,
    ssh_option: Annotated[
        list[str] | None, typer.Option(help="Option for ssh's -o, such as Port=2222.")
    ] = None,
    no_color: Annotated[
        bool, typer.Option("--no-color", help="No colours; NO_COLOR does the same.")
    ] = False,
    events: Annotated[
        bool, typer.Option("--json", help="One JSON event per line on standard output.")
    ] = False,
) -> None:
    """Start the ranks of a program on this host or on others, and end them together."""
    chosen_hosts = _choose_hosts(hosts, num_ranks)
    if tty and not chosen_hosts[0].is_local:
        raise UsageError(f"--tty needs rank 0 on this host; it is on {chosen_hosts[0].name!r}")
    job = Job(
        hosts=chosen_hosts,
        program=tuple(program),
        module=module,
        cwd=str(cwd or Path.cwd()),
        python=python or sys.executable,
        environ=dict(os.environ),
        chosen=_choose_variables(env or [], here=os.environ),
        ssh_options=tuple(ssh_option or ()),
        grace_seconds=grace,
    )
    mode = "failed" if tty else output.value
    if events:
        display = JsonDisplay(sys.stdout, mode=mode)
    else:
        ranks = [host.name for host in chosen_hosts for _ in range(host.slots)]
        color = not no_color and not Console().no_color
        display = TerminalDisplay(ranks, sys.stdout, sys.stderr, mode=mode, color=color)
    raise typer.Exit(launch(job, display, own_terminal=tty))


def _choose_hosts(hosts: str | None, num_ranks: int | None) -> tuple[Host, ...]:
    if hosts is None:
        if num_ranks is None:
            raise UsageError("neither -n nor -H is given; say -n 2 or -H a:2,b:2")
        return (Host(name="localhost", slots=num_ranks),)
    return parse_hosts(hosts, default_slots=num_ranks)


def _choose_variables(assignments: list[str], here: Mapping[str, str]) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for assignment in assignments:
        name, is_given, value = assignment.partition("=")
        if not is_given:
            if name not in here:
                raise UsageError(f"--env is {name!r}, which is not set here; say {name}=VALUE")
            value = here[name]
        chosen[name] = value
    return chosen
