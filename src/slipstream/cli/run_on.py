"""`slipstream run --on ENGINE train.py`: the options of the command as fields of a job."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.errors import UsageError

if TYPE_CHECKING:
    from slipstream.cluster.launch import Host
    from slipstream.cluster.spec import ForecastPlan, JobSpec

ENGINES = "Engines"

OnOption = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="ENGINE",
        rich_help_panel=ENGINES,
        help="Engine that finds the hosts: local, ssh, slurm, k8s, ray, aws or aliyun.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        rich_help_panel=ENGINES,
        help="Value of a field of the job, such as hosts=2:4; may be repeated.",
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        show_default="that of the program",
        rich_help_panel=ENGINES,
        help="Name of the run.",
    ),
]
DetachOption = Annotated[
    bool,
    typer.Option(
        "--detach", rich_help_panel=ENGINES, help="Return when the job has started on an engine."
    ),
]
YesOption = Annotated[
    bool,
    typer.Option(
        "--yes",
        "-y",
        rich_help_panel=ENGINES,
        help="Create machines without asking for the cost.",
    ),
]
PlanOption = Annotated[
    str | None,
    typer.Option(
        "--plan",
        metavar="FILE",
        rich_help_panel=ENGINES,
        help="Output of `slipstream forecast --json`, which fills the job; - is standard input.",
    ),
]
ChooseOption = Annotated[
    int | None,
    typer.Option(
        "--choose",
        metavar="N",
        min=1,
        show_default="1, the best",
        rich_help_panel=ENGINES,
        help="Number of the plan.",
    ),
]

# Options of `slipstream run` that become fields of a job, or say how it is followed.
_FIELDS = (
    *("program", "hosts", "hostfile", "ranks_per_host", "module", "env", "cwd", "python"),
    *("ssh_option", "ssh_port", "ssh_identity_file", "as_json"),
)
# Options that make sense with an engine only.
_OF_ENGINES = ("assignments", "name", "detach", "yes", "dry_run")
_ENGINES_OR_PLANS = ("on", "plan", "choose")
# What says the same in the description of a job, where something does.
_INSTEAD = {
    "min_ranks": "--set hosts=2:4 for 2 to 4 hosts, and --set retry.scope=worker if it is elastic",
    "max_ranks": "--set hosts=2:4 for 2 to 4 hosts, and --set retry.scope=worker if it is elastic",
    "hosts_from": "--set hosts=2:4, and spare hosts after -H",
    "max_restarts": "--set retry.max_restarts=5",
    "wait": "--set retry.lost=10m",
    "num_processes": "-n for the ranks of each host",
    "output_filename": "slipstream cluster logs NAME",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramOptions:
    """The options of `slipstream run` that become fields of a job.

    Args:
        hosts: Hosts of -H or --hostfile; empty if neither is given.
        module: Whether the program is a module.
        variables: Variables for every rank.
        cwd: Folder of the code, or None for the working directory.
        python: Python on the hosts, or None.
        ssh_options: Options for ssh.
        processes: Number of ranks on each host, or None.
    """

    hosts: tuple[Host, ...]
    module: bool
    variables: Mapping[str, str]
    cwd: Path | None
    python: str | None
    ssh_options: tuple[str, ...]
    processes: int | None

    def as_assignments(self) -> list[str]:
        """Return the fields of the job in the notation of --set; their values are JSON."""
        fields: dict[str, object] = {}
        if self.hosts:
            fields["ssh.hosts"] = [host.login or host.name for host in self.hosts]
            fields["hosts"] = len(self.hosts)
        if self.processes is not None:
            fields["processes"] = self.processes
        if self.module:
            fields["module"] = True
        if self.cwd is not None:
            fields["code.folder"] = str(self.cwd.absolute())
        if self.python is not None:
            fields["software.python"] = self.python
        if self.ssh_options:
            fields["ssh.options"] = list(self.ssh_options)
        fields |= {f"env.{name}": value for name, value in self.variables.items()}
        return [f"{name}={json.dumps(value)}" for name, value in fields.items()]


def options_given(context: typer.Context) -> dict[str, str]:
    """Return the spelling of each parameter on the command line, by its name."""
    spelled: dict[str, str] = {}
    for param in context.command.params:
        name = param.name or ""
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            spelled[name] = max(param.opts, key=len)
    return spelled


def check_without_engine(given: Mapping[str, str]) -> None:
    """Refuse options that need an engine; without one, this command starts the ranks itself.

    Args:
        given: Spelling of each parameter on the command line, by its name.

    Raises:
        UsageError: one of them is given.
    """
    for name, spelling in given.items():
        if name in _OF_ENGINES:
            raise UsageError(
                f"{spelling} is given without an engine; say --on ssh, --on local or another"
                " engine too, or name a plan or a job file"
            )


def check_with_engine(given: Mapping[str, str]) -> None:
    """Refuse options of ranks that this command would start itself.

    Args:
        given: Spelling of each parameter on the command line, by its name.

    Raises:
        UsageError: one of them is given.
    """
    for name, spelling in given.items():
        if name not in (*_FIELDS, *_OF_ENGINES, *_ENGINES_OR_PLANS):
            instead = _INSTEAD.get(name)
            raise UsageError(
                f"{spelling} is not for engines (--on, --plan, job files);"
                f" {f'say {instead}' if instead else 'leave it out'}"
            )


def program_job(
    program: Sequence[str],
    overrides: Sequence[str],
    *,
    is_module: bool,
    plan: ForecastPlan | None = None,
) -> JobSpec:
    """Return the job of a program: every field that is not assigned has its default.

    Args:
        program: Program and its arguments.
        overrides: Assignments, as for --set.
        is_module: Whether the program is a Python module.
        plan: Plan that fills the job (default None).

    Raises:
        UsageError: a field or a value is not allowed, or the program cannot be brought to hosts.
    """
    from slipstream.cluster.spec import check_job, fill_job
    from slipstream.cluster.spec.reading import name_of

    stem = program[0] if is_module else Path(program[0]).stem
    fields = {"name": name_of(stem), "command": list(program)}
    job = check_job(fields, "the job", overrides)
    job = job if plan is None else fill_job(job, plan)
    if job.code.git or is_module:
        return job
    folder = (Path.cwd() / job.code.folder).absolute()
    command = program_in(folder, job.command, stays_here=job.on == "local")
    return job.model_copy(update={"command": command})


def name_hosts(
    listed: str | None, hostfile: Path | None, ranks_per_host: int | None
) -> tuple[tuple[Host, ...], int | None]:
    """Return the hosts that the user names, and the number of ranks on each, or None.

    Args:
        listed: Value of -H, or None.
        hostfile: Value of --hostfile, or None.
        ranks_per_host: Value of -n, or None.

    Raises:
        UsageError: both are given, or the hosts have different numbers of ranks.
    """
    from slipstream.cluster.launch import parse_hosts, read_hostfile

    if listed is not None and hostfile is not None:
        raise UsageError("both -H and --hostfile are given; allowed: one of them")
    if hostfile is not None:
        hosts = read_hostfile(hostfile)
    elif listed is None:
        return (), ranks_per_host
    else:
        hosts = parse_hosts(listed, default_slots=ranks_per_host)
        if not any(":" in entry.rpartition("]")[2] for entry in listed.split(",")):
            return hosts, ranks_per_host
    if len({host.slots for host in hosts}) > 1:
        named = ", ".join(f"{host.name}:{host.slots}" for host in hosts)
        raise UsageError(
            f"the hosts have different numbers of ranks ({named}); allowed with an engine: the"
            " same number on each host"
        )
    return hosts, hosts[0].slots


def program_in(folder: Path, program: Sequence[str], *, stays_here: bool) -> tuple[str, ...]:
    """Return the program of a job, whose path is relative to the folder that is brought.

    Args:
        folder: Folder whose files are brought to every host.
        program: Program and its arguments.
        stays_here: Whether the job runs on this host, which has all files.

    Raises:
        UsageError: the program is a file that is not there, or not in the folder; or the folder
            has much more than the files of a job.
    """
    name, *arguments = program
    path = Path(name) if Path(name).is_absolute() else folder / name
    is_script = name.endswith(".py")
    if is_script and not path.exists():
        raise UsageError(f"the program {path} does not exist; allowed: a path below {folder}")
    if stays_here:
        return (str(path), *arguments) if is_script else tuple(program)
    if folder.resolve() in (Path.home().resolve(), Path("/")):
        raise UsageError(
            f"all files of {folder} would be brought to every host; call this in the folder of the"
            " program, or name it with --cwd"
        )
    if not is_script:
        return tuple(program)
    inside = os.path.relpath(path.resolve(), folder.resolve())
    if inside.startswith(".."):
        raise UsageError(
            f"the program {path} is not in {folder}, whose files are brought to every host; call"
            " this in a folder above it, or name one with --cwd"
        )
    return (inside, *arguments)
