"""`slipstream run`: start the ranks of a program on this host or on other hosts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.options import OUTPUT
from slipstream.cli.output import written
from slipstream.errors import UsageError
from slipstream.units import parse_duration

if TYPE_CHECKING:
    from slipstream.cluster import Host
    from slipstream.cluster.display import OutputMode
    from slipstream.cluster.launcher import Display

OTHER_HOSTS = "Other hosts"

# A line of \b keeps the line ends of its paragraph.
EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream run -n 2 train.py --lr 0.1     two ranks on this host
  slipstream run -H a:2,b:2 train.py        two on each of two hosts, by ssh
  slipstream run -np 3 --hostfile hosts train.py    three in all
  slipstream run -n 4 -m package.train      a module
  slipstream run -n 2 ./program             any program
  slipstream run -H a:8,b:8 --nccl-plugin train.py  any framework over NCCL
  slipstream run -n 2 --tty train.py        rank 0 draws on the terminal
  slipstream run -H a:8 --ssh-option Port=2222 --env DATA=/data train.py

Each rank gets the variables of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT)
and the key of the job. When a rank fails, the others end.

[bold]Exit code[/bold]: that of the rank that failed first, 128 + n if signal n ended it; 1 if a
host failed; 2 for wrong usage.
"""


class ShowChoice(str, Enum):
    """Ranks whose output is shown."""

    ALL = "all"
    RANK0 = "rank0"
    FAILED = "failed"


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    settings = {"allow_interspersed_args": False}
    app.command("run", context_settings=settings, epilog=EXAMPLES)(run)


# over budget: a parameter for each option of the command
def run(
    program: Annotated[
        list[str],
        typer.Argument(
            metavar="PROGRAM...",
            help="A .py file, a module with -m, or any program, followed by its arguments.",
        ),
    ],
    ranks_per_host: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--ranks-per-host",
            "--nproc-per-node",
            min=1,
            help="Number of ranks on this host, or on each host of -H.",
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            "-H",
            "--hosts",
            metavar="LIST",
            help="Names of hosts with numbers of ranks: a:2,me@b:4.",
        ),
    ] = None,
    num_processes: Annotated[
        int | None,
        typer.Option(
            "-np",
            "--num-proc",
            min=1,
            help="Total number of ranks; each host is filled before the next one is used.",
        ),
    ] = None,
    hostfile: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File of hosts in place of -H; each line has the form: name slots=2.",
        ),
    ] = None,
    module: Annotated[
        bool, typer.Option("-m", "--module", help="Run the program as a Python module.")
    ] = False,
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=VALUE]",
            help="Variable for every rank; without =VALUE, this host's value; may be repeated.",
        ),
    ] = None,
    nccl_plugin: Annotated[
        bool,
        typer.Option(
            "--nccl-plugin",
            help="Let NCCL use several connections, through Slipstream's net plugin.",
        ),
    ] = False,
    cwd: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", show_default="this folder", help="Working directory on every host."
        ),
    ] = None,
    grace: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Time between SIGTERM and SIGKILL when ranks are ended: 500ms."
        ),
    ] = "3s",
    python: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            show_default="the path of this Python",
            rich_help_panel=OTHER_HOSTS,
            help="Path of Python on the other hosts.",
        ),
    ] = None,
    ssh_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            rich_help_panel=OTHER_HOSTS,
            help="Option that ssh gets with -o, such as Port=2222; may be repeated.",
        ),
    ] = None,
    ssh_port: Annotated[
        int | None,
        typer.Option(
            "-p", "--ssh-port", rich_help_panel=OTHER_HOSTS, help="Port of sshd on the other hosts."
        ),
    ] = None,
    ssh_identity_file: Annotated[
        Path | None,
        typer.Option(
            "-i",
            "--ssh-identity-file",
            metavar="FILE",
            rich_help_panel=OTHER_HOSTS,
            help="Private key for ssh.",
        ),
    ] = None,
    show: Annotated[
        ShowChoice,
        typer.Option(rich_help_panel=OUTPUT, help="Ranks whose output is shown during the run."),
    ] = ShowChoice.ALL,
    output_filename: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            rich_help_panel=OUTPUT,
            help="Folder for rank.N/stdout and rank.N/stderr of each rank.",
        ),
    ] = None,
    tty: Annotated[
        bool,
        typer.Option(
            "--tty",
            rich_help_panel=OUTPUT,
            help="Let rank 0 use this terminal; hide the output of other ranks.",
        ),
    ] = False,
    no_color: Annotated[
        bool,
        typer.Option(
            "--no-color", rich_help_panel=OUTPUT, help="Print without colours, as with NO_COLOR."
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", rich_help_panel=OUTPUT, help="Print one JSON event per line."),
    ] = False,
) -> None:
    """Start the ranks of a program on this host or on other hosts."""
    from slipstream.cluster import Job, launch
    from slipstream.cluster.output_files import OutputFiles

    chosen_hosts = _choose_hosts(hosts, hostfile, ranks_per_host, num_processes)
    if tty:
        _check_terminal(chosen_hosts, output_filename, as_json=as_json)
    job = Job(
        hosts=chosen_hosts,
        program=tuple(program),
        module=module,
        cwd=str(cwd or Path.cwd()),
        python=python or sys.executable,
        environ=dict(os.environ),
        chosen=_choose_variables(env or [], here=os.environ),
        ssh_options=_ssh_options(ssh_option or [], ssh_port, ssh_identity_file),
        grace_seconds=parse_duration(grace, "grace", bare_seconds=True),
        nccl_plugin=nccl_plugin,
    )
    ranks = [host.name for host in chosen_hosts for _ in range(host.slots)]
    display = _display(ranks, "failed" if tty else show.value, as_json=as_json, color=not no_color)
    if output_filename is not None:
        display = OutputFiles(display, output_filename, len(ranks))
    code = launch(job, display, own_terminal=tty)
    if output_filename is not None:
        written(output_filename)
    raise typer.Exit(code)


def _display(ranks: list[str], mode: OutputMode, *, as_json: bool, color: bool) -> Display:
    from slipstream.cluster.display import JsonDisplay, TerminalDisplay

    if as_json:
        return JsonDisplay(sys.stdout, mode=mode)
    from rich.console import Console

    color = color and not Console().no_color
    return TerminalDisplay(ranks, sys.stdout, sys.stderr, mode=mode, color=color)


def _check_terminal(
    hosts: tuple[Host, ...], output_filename: Path | None, *, as_json: bool
) -> None:
    if not hosts[0].is_local:
        raise UsageError(f"--tty needs rank 0 on this host; it is on {hosts[0].name!r}")
    if output_filename is not None:
        raise UsageError("both --tty and --output-filename are given; allowed: one of them")
    if as_json:
        raise UsageError("both --tty and --json are given; allowed: one of them")


def _choose_hosts(
    hosts: str | None, hostfile: Path | None, ranks_per_host: int | None, num_processes: int | None
) -> tuple[Host, ...]:
    from slipstream.cluster import Host, fill_hosts, parse_hosts, read_hostfile

    if hosts is not None and hostfile is not None:
        raise UsageError("both -H and --hostfile are given; allowed: one of them")
    if ranks_per_host is not None and num_processes is not None:
        raise UsageError("both -n and -np are given; allowed: ranks on each host, or in all")
    if hostfile is not None:
        chosen = read_hostfile(hostfile)
    elif hosts is not None:
        chosen = parse_hosts(hosts, default_slots=ranks_per_host)
    else:
        slots = ranks_per_host or num_processes
        if slots is None:
            raise UsageError("neither -n nor -H is given; say -n 2 or -H a:2,b:2")
        chosen = (Host(name="localhost", slots=slots),)
    return chosen if num_processes is None else fill_hosts(chosen, num_processes)


def _ssh_options(
    ssh_options: list[str], port: int | None, identity: Path | None
) -> tuple[str, ...]:
    options = list(ssh_options)
    if port is not None:
        options.append(f"Port={port}")
    if identity is not None:
        options.append(f"IdentityFile={identity}")
    return tuple(options)


def _choose_variables(assignments: list[str], here: Mapping[str, str]) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for assignment in assignments:
        name, is_given, value = assignment.partition("=")
        if not name:
            raise UsageError(f"--env is {assignment!r}; allowed: NAME or NAME=VALUE")
        if not is_given:
            if name not in here:
                raise UsageError(f"--env is {name!r}, which is not set here; say {name}=VALUE")
            value = here[name]
        chosen[name] = value
    return chosen
