"""`slipstream run`: start the ranks of a program here or on other hosts."""

import os
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from slipstream.cluster import Host, Job, fill_hosts, launch, parse_hosts, read_hostfile
from slipstream.cluster.display import JsonDisplay, TerminalDisplay
from slipstream.cluster.output_files import OutputFiles
from slipstream.errors import UsageError

# A line of \b keeps the line ends of its paragraph.
EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream run -n 2 train.py --lr 0.1     two ranks on this host
  slipstream run -H a:2,b:2 train.py        two on each of two hosts, by ssh
  slipstream run -np 3 --hostfile hosts train.py    three in all
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


OutputFolder = Annotated[
    Path | None, typer.Option(help="Folder that gets rank.N/stdout and stderr of each rank.")
]
SshPort = Annotated[int | None, typer.Option("-p", "--ssh-port", help="Port of sshd on the hosts.")]
SshIdentity = Annotated[Path | None, typer.Option("-i", "--ssh-identity-file", help="Key for ssh.")]


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
    num_processes: Annotated[
        int | None,
        typer.Option(
            "-np", "--num-proc", min=1, help="Ranks in total; the hosts are filled in turn."
        ),
    ] = None,
    hostfile: Annotated[
        Path | None, typer.Option(help="File of hosts in place of -H; a line is: name slots=2.")
    ] = None,
    module: Annotated[
        bool, typer.Option("-m", "--module", help="Run the program as a Python module.")
    ] = False,
    output: Annotated[
        OutputChoice, typer.Option(help="Ranks whose output is shown while they run.")
    ] = OutputChoice.ALL,
    output_filename: OutputFolder = None,
    tty: Annotated[
        bool,
        typer.Option("--tty", help="Let rank 0 use this terminal; the others stay silent."),
    ] = False,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds between SIGTERM and SIGKILL when ranks are ended.")
    ] = 3.0,
    env: Annotated[
        list[str] | None,
        typer.Option(help="Variable of every rank: NAME=VALUE, or NAME with its value here."),
    ] = None,
    python: Annotated[
        str | None, typer.Option(help="Python on the other hosts; default: the path of this one.")
    ] = None,
    cwd: Annotated[
        Path | None, typer.Option(help="Working directory on every host; default: the one here.")
    ] = None,
    ssh_option: Annotated[
        list[str] | None, typer.Option(help="Option for ssh's -o, such as Port=2222.")
    ] = None,
    ssh_port: SshPort = None,
    ssh_identity_file: SshIdentity = None,
    no_color: Annotated[
        bool, typer.Option("--no-color", help="Print no colours, as with NO_COLOR.")
    ] = False,
    events: Annotated[bool, typer.Option("--json", help="Print one JSON event per line.")] = False,
) -> None:
    """Start the ranks of a program on this host or on others, and end them together."""
    chosen_hosts = _choose_hosts(hosts, hostfile, num_ranks, num_processes)
    if tty:
        _check_terminal(chosen_hosts, output_filename)
    job = Job(
        hosts=chosen_hosts,
        program=tuple(program),
        module=module,
        cwd=str(cwd or Path.cwd()),
        python=python or sys.executable,
        environ=dict(os.environ),
        chosen=_choose_variables(env or [], here=os.environ),
        ssh_options=_ssh_options(ssh_option or [], ssh_port, ssh_identity_file),
        grace_seconds=grace,
    )
    mode = "failed" if tty else output.value
    if events:
        display = JsonDisplay(sys.stdout, mode=mode)
    else:
        ranks = [host.name for host in chosen_hosts for _ in range(host.slots)]
        color = not no_color and not Console().no_color
        display = TerminalDisplay(ranks, sys.stdout, sys.stderr, mode=mode, color=color)
    if output_filename is not None:
        display = OutputFiles(display, output_filename, sum(host.slots for host in chosen_hosts))
    raise typer.Exit(launch(job, display, own_terminal=tty))


def _check_terminal(hosts: tuple[Host, ...], output_filename: Path | None) -> None:
    if not hosts[0].is_local:
        raise UsageError(f"--tty needs rank 0 on this host; it is on {hosts[0].name!r}")
    if output_filename is not None:
        raise UsageError("both --tty and --output-filename are given; allowed: one of them")


def _choose_hosts(
    hosts: str | None, hostfile: Path | None, num_ranks: int | None, num_processes: int | None
) -> tuple[Host, ...]:
    if hosts is not None and hostfile is not None:
        raise UsageError("both -H and --hostfile are given; allowed: one of them")
    if num_ranks is not None and num_processes is not None:
        raise UsageError("both -n and -np are given; allowed: ranks on each host, or in all")
    if hostfile is not None:
        chosen = read_hostfile(hostfile)
    elif hosts is not None:
        chosen = parse_hosts(hosts, default_slots=num_ranks)
    else:
        slots = num_ranks or num_processes
        if slots is None:
            raise UsageError("neither -n nor -H is given; say -n 2 or -H a:2,b:2")
        chosen = (Host(name="localhost", slots=slots),)
    return chosen if num_processes is None else fill_hosts(chosen, num_processes)


def _ssh_options(given: list[str], port: int | None, identity: Path | None) -> tuple[str, ...]:
    options = list(given)
    if port is not None:
        options.append(f"Port={port}")
    if identity is not None:
        options.append(f"IdentityFile={identity}")
    return tuple(options)


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
