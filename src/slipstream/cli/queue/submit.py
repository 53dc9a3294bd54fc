"""`slipstream queue submit`: give a job to the queue."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.options import AsJson
from slipstream.cli.output import emit, remark
from slipstream.cli.queue.job_file import (
    fields_of,
    is_job_file,
    remark_on_checkpoint,
    request_of,
    spec_of_file,
    spec_of_program,
)
from slipstream.cli.queue.opening import opened_queue, wake_daemon
from slipstream.errors import UsageError
from slipstream.settings import secret_variables
from slipstream.units import MIB, parse_bytes, parse_duration

if TYPE_CHECKING:
    from slipstream.cluster.queue import QueueStore, ResourceRequest
    from slipstream.cluster.spec import JobSpec

RESOURCES = "Resources of each host"

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream queue submit job.yaml
  slipstream queue submit --preemptible --set hosts=2:4 job.yaml
  slipstream queue submit --gpus 2 train.py --lr 0.1
  slipstream queue submit --gpus 1 --gpu-memory 20GiB train.py   a share of a GPU
  slipstream queue submit --gpus 8 --gpu H100 --preemptible --grace 2m train.py
  slipstream queue submit --cpus 4 --accelerator fpga=1 ./program
  slipstream queue submit --time 2h --priority 1 --env DATA=/data train.py

A job with --time may start earlier: it may use GPUs that are kept for a larger job until then.
A preemptible job gets SIGTERM when a job of a higher priority needs its GPUs, saves, and ends with
any exit code but 0; it is started again later.
"""


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    settings = {"allow_interspersed_args": False}
    app.command("submit", context_settings=settings, epilog=EXAMPLES)(submit)


# over budget: a parameter for each option of the command
def submit(
    program: Annotated[
        list[str],
        typer.Argument(
            metavar="PROGRAM...",
            help="A job file (.yaml), a .py file or any program, with arguments.",
        ),
    ],
    gpus: Annotated[
        int, typer.Option(min=0, rich_help_panel=RESOURCES, help="Number of GPUs.")
    ] = 0,
    gpu: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            rich_help_panel=RESOURCES,
            help="Text that the name of these GPUs contains, such as H100.",
        ),
    ] = "",
    gpu_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            show_default="whole GPUs",
            rich_help_panel=RESOURCES,
            help="Share of each GPU's memory; other jobs get the rest: 20GiB.",
        ),
    ] = None,
    cpus: Annotated[
        int, typer.Option(min=0, rich_help_panel=RESOURCES, help="Number of processors.")
    ] = 1,
    memory: Annotated[
        str, typer.Option(metavar="SIZE", rich_help_panel=RESOURCES, help="Memory: 32GiB.")
    ] = "0",
    accelerator: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N",
            rich_help_panel=RESOURCES,
            help="Another device, such as fpga=1; may be repeated.",
        ),
    ] = None,
    min_hosts: Annotated[
        int,
        typer.Option(min=1, rich_help_panel=RESOURCES, help="Smallest number of hosts."),
    ] = 1,
    max_hosts: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="the smallest",
            rich_help_panel=RESOURCES,
            help="Largest number of hosts.",
        ),
    ] = None,
    name: Annotated[
        str, typer.Option(metavar="NAME", show_default="the program", help="Name of the job.")
    ] = "",
    team: Annotated[str, typer.Option(metavar="NAME", help="Team whose quota counts too.")] = "",
    priority: Annotated[int, typer.Option(help="Priority; larger numbers start first.")] = 0,
    expected: Annotated[
        str | None,
        typer.Option("--time", metavar="TIME", help="Expected length, such as 2h."),
    ] = None,
    preemptible: Annotated[
        bool,
        typer.Option("--preemptible", help="Let the job save, stop and go on later for others."),
    ] = False,
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="Time between SIGTERM and SIGKILL.")
    ] = "30s",
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=VALUE]",
            help="Variable for the job; without =VALUE, the value here; may be repeated.",
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Value of a field of the job file, such as hosts=2:4; may be repeated.",
        ),
    ] = None,
    hold: Annotated[
        bool, typer.Option("--hold", help="Let the job wait until it is released.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Give a job to the queue."""
    from slipstream.cluster.queue import JobQueue, JobSubmission, ResourceRequest

    request = ResourceRequest(
        gpus=gpus,
        gpu=gpu,
        gpu_memory_mib=_mib(gpu_memory, "--gpu-memory") if gpu_memory else 0,
        cpus=cpus,
        memory_mib=_mib(memory, "--memory"),
        accelerators=parse_accelerators(accelerator or []),
        min_hosts=min_hosts,
        max_hosts=max_hosts or min_hosts,
    )
    environ = _variables(env or [], os.environ)
    grace_seconds = parse_duration(grace, "--grace", bare_seconds=True)
    with opened_queue() as store:
        spec = _spec(store, program, request, overrides or [])
        if spec is None:
            request = replace(request, on="local")
        else:
            request = request_of(spec)
            grace_seconds = spec.grace if is_job_file(program) else grace_seconds
        if spec is not None and preemptible:
            remark_on_checkpoint(spec)
        submission = JobSubmission(
            command=_command(program) if spec is None else spec.command,
            cwd=str(Path(program[0]).absolute().parent if is_job_file(program) else Path.cwd()),
            request=request,
            name=name or Path(program[0]).name,
            user=getpass.getuser(),
            team=team,
            priority=priority,
            environ=environ | secret_variables(spec.secrets if spec else ()),
            expected_seconds=parse_duration(expected, "--time") if expected else None,
            preemptible=preemptible,
            grace_seconds=grace_seconds,
            held=hold,
            spec=None if spec is None else fields_of(spec, environ, grace_seconds),
        )
        queue = JobQueue(store)
        number = queue.submit(submission)
        impossible = queue.impossible(request)
    if impossible:
        remark(f"job {number} {impossible}", style="yellow")
    emit({"job": number}, [f"job {number}"], as_json=as_json)
    wake_daemon()


def _spec(
    store: QueueStore, program: list[str], request: ResourceRequest, overrides: list[str]
) -> JobSpec | None:
    """Return the description of a job that runs over machines; None for a process on this host."""
    from slipstream.cluster.queue import MachinePool, ResourceRequest

    if is_job_file(program):
        plain = ResourceRequest(min_hosts=request.min_hosts, max_hosts=request.max_hosts)
        if request != plain or request.max_hosts > 1:
            raise UsageError(
                "resources of a job file are in the file; change them with --set, such as"
                " --set resources.gpus=2 --set hosts=2:4"
            )
        return spec_of_file(program, overrides)
    if any(machine.login for machine in MachinePool(store).machines()):
        return spec_of_program(program, request, overrides)
    if overrides:
        raise UsageError(
            f"--set {overrides[0]} is for jobs over machines; add some first: slipstream queue"
            " machines add HOST..."
        )
    return None


def parse_accelerators(texts: list[str]) -> dict[str, int]:
    """Return numbers of devices by name, from texts such as "fpga=1".

    Raises:
        UsageError: a text has another form.
    """
    found: dict[str, int] = {}
    for text in texts:
        name, _, count = text.partition("=")
        if not name or not count.isdecimal():
            raise UsageError(f"--accelerator is {text!r}; allowed: NAME=N, such as fpga=1")
        found[name] = int(count)
    return found


def _mib(text: str, option: str) -> int:
    """Return a size in MiB, rounded up."""
    return -(-parse_bytes(text, option) // MIB)


def _command(program: list[str]) -> tuple[str, ...]:
    if program[0].endswith(".py"):
        return (sys.executable, "-u", *program)
    return tuple(program)


def _variables(assignments: list[str], here: Mapping[str, str]) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for assignment in assignments:
        name, is_given, value = assignment.partition("=")
        if not name or (not is_given and name not in here):
            raise UsageError(
                f"--env is {assignment!r}; allowed: NAME=VALUE, or the NAME of a variable set here"
            )
        chosen[name] = value if is_given else here[name]
    return chosen
