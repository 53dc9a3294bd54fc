"""Jobs over machines, from a job file or from a program and the options of `submit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.cli.output import remark
from slipstream.errors import UsageError

if TYPE_CHECKING:
    from slipstream.cluster.queue import ResourceRequest
    from slipstream.cluster.spec import JobSpec

SUFFIXES = (".yaml", ".yml")


def is_job_file(program: Sequence[str]) -> bool:
    """Return whether a program is a job file."""
    return program[0].endswith(SUFFIXES)


def spec_of_file(program: Sequence[str], overrides: Sequence[str]) -> JobSpec:
    """Return the job of a file; the queue chooses its engine and hosts.

    Args:
        program: Path of the file, and nothing else.
        overrides: Assignments to its fields.

    Raises:
        UsageError: the file has errors, or arguments follow it.
    """
    from slipstream.cluster.spec import read_job

    if len(program) > 1:
        raise UsageError(
            f"{program[1]!r} follows the job file {program[0]}; options go before it, and fields"
            " of the job are set with --set FIELD=VALUE"
        )
    return _checked(read_job(Path(program[0]), overrides))


def spec_of_program(
    program: Sequence[str], request: ResourceRequest, overrides: Sequence[str]
) -> JobSpec:
    """Return the job of a program, which runs with the files of the working directory.

    Args:
        program: Program and arguments.
        request: Resources of each host.
        overrides: Assignments to further fields.

    Raises:
        UsageError: a field or a value is not allowed.
    """
    from slipstream.cluster.spec import check_job

    gib = 1024.0
    fields: dict[str, Any] = {
        "name": "job",
        "command": list(program),
        "hosts": {"min": request.min_hosts, "max": request.max_hosts},
        "processes": "gpu" if request.gpus else 1,
        "resources": {
            "gpus": request.gpus,
            "gpu": request.gpu,
            "gpu_memory": request.gpu_memory_mib / gib or None,
            "cpus": request.cpus,
            "memory": request.memory_mib / gib or None,
            "accelerators": dict(request.accelerators),
        },
    }
    return _checked(check_job(fields, "the job", overrides))


def request_of(spec: JobSpec) -> ResourceRequest:
    """Return the resources that a job asks for."""
    from slipstream.cluster.queue import ResourceRequest

    wanted = spec.resources
    mib = 1024.0
    return ResourceRequest(
        gpus=wanted.gpus or int(wanted.gpu != "" or wanted.gpu_memory is not None),
        gpu=wanted.gpu,
        gpu_memory_mib=round((wanted.gpu_memory or 0.0) * mib),
        cpus=max(wanted.cpus, 1),
        memory_mib=round((wanted.memory or 0.0) * mib),
        accelerators=wanted.accelerators,
        min_hosts=spec.hosts.min,
        max_hosts=spec.hosts.max,
        on="ssh" if _needs_ssh(spec) else "",
    )


def _needs_ssh(spec: JobSpec) -> bool:
    """Return whether a job has several hosts, or brings what only hosts behind ssh get."""
    software = spec.software
    brought = (software.packages, software.requirements, software.setup, spec.data, spec.code.git)
    return spec.hosts.max > 1 or any(brought)


def fields_of(spec: JobSpec, environ: Mapping[str, str], grace_seconds: float) -> dict[str, Any]:
    """Return the description of a job for the queue, as JSON without any value of a variable.

    Args:
        spec: Description by the user.
        environ: Further variables of the job, which may be secret.
        grace_seconds: Time in seconds between SIGTERM and SIGKILL.
    """
    secrets = tuple(dict.fromkeys((*spec.secrets, *environ)))
    return spec.model_copy(update={"secrets": secrets, "grace": grace_seconds}).model_dump(
        mode="json"
    )


def _checked(spec: JobSpec) -> JobSpec:
    """Return a job for the machines of the queue."""
    if spec.on not in ("local", "ssh"):
        raise UsageError(
            f"the job runs on {spec.on}, but the queue runs jobs on its own machines; leave `on`"
            f" out, or call: slipstream run --on {spec.on}"
        )
    if spec.ssh.hosts:
        remark("ssh.hosts is not used: the queue chooses the hosts")
    return spec


def remark_on_checkpoint(spec: JobSpec) -> None:
    """Say so if a preemptible job would not find its checkpoint on other machines."""
    if spec.checkpoint and not spec.checkpoint.startswith("/") and "://" not in spec.checkpoint:
        remark(
            f"the checkpoint {spec.checkpoint} is on the first host only, where the next start does"
            " not find it; name a folder that all machines share, or a URL",
            style="yellow",
        )
