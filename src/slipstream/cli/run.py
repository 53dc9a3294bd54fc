"""`slipstream run`: start the ranks of a program on this host or on other hosts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.cluster.dry_run import DryRunOption
from slipstream.cli.cluster.plan import chosen_plan
from slipstream.cli.cluster.run_job import RunChoices, is_job_file, run_job, run_spec
from slipstream.cli.options import OUTPUT
from slipstream.cli.output import remark, written
from slipstream.cli.run_hosts import HostArguments, choose_elastic_options, choose_hosts
from slipstream.cli.run_on import (
    ChooseOption,
    DetachOption,
    NameOption,
    OnOption,
    PlanOption,
    ProgramOptions,
    SetOption,
    YesOption,
    check_with_engine,
    check_without_engine,
    name_hosts,
    options_given,
    program_job,
)
from slipstream.errors import UsageError
from slipstream.processor import num_gpus
from slipstream.units import parse_duration

if TYPE_CHECKING:
    from slipstream.cluster.elastic import ElasticOptions
    from slipstream.cluster.elastic.listeners import ElasticDisplay
    from slipstream.cluster.launch import Host, Job
    from slipstream.cluster.launch.display import JsonDisplay, OutputMode, TerminalDisplay
    from slipstream.cluster.launch.labels import Labels
    from slipstream.cluster.launch.launcher import Display

OTHER_HOSTS = "Other hosts"
ELASTIC = "Elastic jobs"

GRACE = "3s"
ELASTIC_GRACE = "30s"

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
  slipstream run --min 2 --max 8 --hosts-from hosts.sh train.py    elastic
  slipstream run --on ssh -H a,b train.py   files, environment and retries too
  slipstream run job.yaml --on ssh          the job of a file, on any engine

Each rank gets the variables of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT)
and the key of the job. When a rank fails, the others end; in an elastic job
(--min or --max) the others go on, and another process takes its place.

[bold]Exit code[/bold]: that of the rank that failed first, 128 + n if signal n ended it; 1 if a
host failed; 2 for wrong usage; 3 if the members changed more often than --max-changes allows.
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
    context: typer.Context,
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
    on: OnOption = None,
    plan: PlanOption = None,
    choose: ChooseOption = None,
    assignments: SetOption = None,
    name: NameOption = None,
    detach: DetachOption = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
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
        str | None,
        typer.Option(
            metavar="TIME",
            show_default="3s, elastic 30s",
            help="Time between SIGTERM and SIGKILL when ranks are ended: 500ms.",
        ),
    ] = None,
    min_ranks: Annotated[
        int | None,
        typer.Option(
            "--min",
            min=1,
            show_default="1",
            rich_help_panel=ELASTIC,
            help="Smallest number of ranks with which the job goes on.",
        ),
    ] = None,
    max_ranks: Annotated[
        int | None,
        typer.Option(
            "--max",
            min=1,
            show_default="the slots of the hosts",
            rich_help_panel=ELASTIC,
            help="Largest number of ranks.",
        ),
    ] = None,
    hosts_from: Annotated[
        Path | None,
        typer.Option(
            metavar="PROGRAM",
            rich_help_panel=ELASTIC,
            help="Program that is run every second and prints the hosts, each as a:2.",
        ),
    ] = None,
    max_restarts: Annotated[
        int | None,
        typer.Option(
            min=0,
            show_default="no limit",
            rich_help_panel=ELASTIC,
            help="Largest number of failed processes that are replaced.",
        ),
    ] = None,
    wait: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            show_default="10m",
            rich_help_panel=ELASTIC,
            help="Longest time with fewer slots than --min.",
        ),
    ] = None,
    poll: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            show_default="1s",
            rich_help_panel=ELASTIC,
            help="Time between two runs of the program that prints the hosts.",
        ),
    ] = None,
    whole_hosts: Annotated[
        bool,
        typer.Option(
            "--whole-hosts",
            rich_help_panel=ELASTIC,
            help="Take the host of a failed process out of the job, as Horovod does.",
        ),
    ] = False,
    cooldown: Annotated[
        str | None,
        typer.Option(
            metavar="TIME,TIME",
            show_default="for good",
            rich_help_panel=ELASTIC,
            help="Shortest and longest time for which such a host stays out: 1s,60s.",
        ),
    ] = None,
    max_changes: Annotated[
        int | None,
        typer.Option(
            min=0,
            show_default="no limit",
            rich_help_panel=ELASTIC,
            help="Largest number of changes of the members with --whole-hosts.",
        ),
    ] = None,
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
    spelled = options_given(context)
    if on is not None or plan is not None or choose is not None or is_job_file(program):
        check_with_engine(spelled)
        named, processes = name_hosts(hosts, hostfile, ranks_per_host)
        options = ProgramOptions(
            hosts=named,
            processes=processes,
            module=module,
            variables=_choose_variables(env or [], here=os.environ),
            cwd=cwd,
            python=python,
            ssh_options=_ssh_options(ssh_option or [], ssh_port, ssh_identity_file),
        )
        choices = RunChoices(
            on=on,
            name=name,
            assignments=(*options.as_assignments(), *(assignments or ())),
            detach=detach,
            yes=yes,
            dry_run=dry_run,
            as_json=as_json,
            names_hosts=bool(named),
            plan=chosen_plan(plan, choose),
        )
        if is_job_file(program):
            raise typer.Exit(run_job(Path(program[0]), program[1:], choices))
        job = program_job(program, choices.overrides, is_module=module, plan=choices.plan)
        raise typer.Exit(run_spec(job, Path.cwd(), choices))
    check_without_engine(spelled)
    from slipstream.cluster.launch import Job
    from slipstream.settings import without_elastic_part

    given = HostArguments(
        hosts=hosts,
        hostfile=hostfile,
        ranks_per_host=ranks_per_host,
        num_processes=num_processes,
        min_ranks=min_ranks,
        max_ranks=max_ranks,
        hosts_from=hosts_from,
        max_restarts=max_restarts,
        wait=wait,
        poll=poll,
        whole_hosts=whole_hosts,
        cooldown=cooldown,
        max_changes=max_changes,
    )
    chosen_hosts = choose_hosts(given)
    elastic = choose_elastic_options(given, chosen_hosts)
    if nccl_plugin and any(host.is_local for host in chosen_hosts) and not num_gpus():
        remark("--nccl-plugin has no effect on this host, which has no NVIDIA GPU for NCCL")
    if tty:
        _check_terminal(chosen_hosts, output_filename, as_json=as_json, elastic=given.is_elastic)
    grace = grace or (GRACE if elastic is None else ELASTIC_GRACE)
    job = Job(
        hosts=chosen_hosts,
        program=tuple(program),
        module=module,
        cwd=str(cwd or Path.cwd()),
        python=python or sys.executable,
        environ=without_elastic_part(os.environ),
        chosen=_choose_variables(env or [], here=os.environ),
        ssh_options=_ssh_options(ssh_option or [], ssh_port, ssh_identity_file),
        grace_seconds=parse_duration(grace, "grace", bare_seconds=True),
        nccl_plugin=nccl_plugin,
    )
    shown = Shown(mode="failed" if tty else show.value, as_json=as_json, color=not no_color)
    if elastic is None:
        code = _launch(job, shown, output_filename, tty=tty)
    else:
        code = _launch_elastic(job, elastic, shown, output_filename)
    if output_filename is not None:
        written(output_filename)
    raise typer.Exit(code)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """What is shown of a job: the ranks whose lines are shown, as JSON or not, in colour or not."""

    mode: OutputMode
    as_json: bool
    color: bool


def _launch(job: Job, shown: Shown, output_filename: Path | None, *, tty: bool) -> int:
    from slipstream.cluster.launch import launch
    from slipstream.cluster.launch.flight_log import FlightLog
    from slipstream.cluster.launch.labels import Labels
    from slipstream.cluster.launch.output_files import OutputFiles

    ranks = [host.name for host in job.hosts for _ in range(host.slots)]
    display: Display = _display(Labels(ranks), shown)
    if output_filename is not None:
        display = OutputFiles(display, output_filename, len(ranks))
    folder = _flight_folder(job)
    if folder is None:
        return launch(job, display, own_terminal=tty)
    recorded = replace(job, flight_folder=folder)
    flight = FlightLog(display, folder, recorded)
    try:
        return launch(recorded, flight, own_terminal=tty, flight=flight)
    finally:
        flight.remove_if_empty()


def _flight_folder(job: Job) -> Path | None:
    """Make the folder for flight records; if it cannot be made, say so and return None."""
    from slipstream.cluster.launch.flight_log import make_flight_folder

    try:
        return make_flight_folder(job)
    except OSError as error:
        remark(f"no flight records are written, because {error.filename}: {error.strerror}")
        return None


def _launch_elastic(
    job: Job, options: ElasticOptions, shown: Shown, output_filename: Path | None
) -> int:
    from slipstream.cluster.elastic import launch_elastic
    from slipstream.cluster.elastic.flight_log import ElasticFlightLog
    from slipstream.cluster.launch.labels import Labels
    from slipstream.cluster.launch.output_files import ElasticOutputFiles

    several = options.hosts_from is not None or len(job.hosts) > 1
    display: ElasticDisplay = _display(Labels([], with_hosts=several), shown)
    if output_filename is not None:
        display = ElasticOutputFiles(display, output_filename)
    folder = _flight_folder(job)
    if folder is None:
        return launch_elastic(job, options, display)
    recorded = replace(job, flight_folder=folder)
    flight = ElasticFlightLog(display, folder, recorded)
    try:
        return launch_elastic(recorded, options, flight, flight=flight)
    finally:
        flight.remove_if_empty()


def _display(labels: Labels, shown: Shown) -> JsonDisplay | TerminalDisplay:
    from slipstream.cluster.launch.display import JsonDisplay, TerminalDisplay

    if shown.as_json:
        return JsonDisplay(sys.stdout, mode=shown.mode)
    from rich.console import Console

    color = shown.color and not Console().no_color
    return TerminalDisplay(labels, sys.stdout, sys.stderr, mode=shown.mode, color=color)


def _check_terminal(
    hosts: tuple[Host, ...], output_filename: Path | None, *, as_json: bool, elastic: bool
) -> None:
    if elastic:
        raise UsageError(
            "--tty needs a rank 0 that stays; leave it out of elastic jobs (--min, --max)"
        )
    if not hosts[0].is_local:
        raise UsageError(f"--tty needs rank 0 on this host; it is on {hosts[0].name!r}")
    if output_filename is not None:
        raise UsageError("both --tty and --output-filename are given; allowed: one of them")
    if as_json:
        raise UsageError("both --tty and --json are given; allowed: one of them")


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
