"""The description of a run that has exactly the hosts and GPUs that the scheduler has granted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipstream.cluster.queue.pool import MachinePool
from slipstream.cluster.queue.rows import allocation_of
from slipstream.cluster.queue.shapes import Allocation, QueueMachine
from slipstream.cluster.queue.store import AttemptRow, JobRow, QueueStore
from slipstream.cluster.spec import JobSpec, check_job
from slipstream.settings import queue_job_environment


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOrder:
    """What a client must know of one start of a job.

    Args:
        spec: Description of the run.
        base: Folder to which its paths are relative.
        environ: Values of variables that the user gave with the job, which may be secret.
    """

    spec: JobSpec
    base: Path
    environ: Mapping[str, str]


def read_order(store: QueueStore, token: str) -> RunOrder:
    """Return the order of a token.

    Args:
        store: Database of the queue.
        token: Name of the start, which becomes the name of the run.

    Raises:
        UsageError: the description of the job is one of another version.
    """
    with store.transaction() as session:
        attempt = session.get_one(AttemptRow, token)
        job = session.get_one(JobRow, attempt.job)
        allocation = allocation_of(attempt.allocation)
    asked = check_job(job.spec or {}, f"job {job.number}")
    machines = {machine.name: machine for machine in MachinePool(store).machines()}
    spec = granted_spec(asked, token, allocation, machines)
    names = tuple(share.machine for share in allocation)
    environ = {**spec.env, **queue_job_environment(job.number, names)}
    return RunOrder(
        spec=spec.model_copy(update={"env": environ}), base=Path(job.cwd), environ=job.environ
    )


def granted_spec(
    spec: JobSpec, name: str, allocation: Allocation, machines: Mapping[str, QueueMachine]
) -> JobSpec:
    """Return a job that runs on an allocation and nowhere else.

    One share of the daemon's own host needs no ssh.

    Args:
        spec: Description by the user.
        name: Name of the run.
        allocation: Shares of machines.
        machines: Machines by name; those of the allocation are among them.
    """
    num_hosts, first = len(allocation), allocation[0]
    fields: dict[str, Any] = spec.model_dump(mode="json")
    fields["name"] = name
    fields["hosts"] = {"min": min(spec.hosts.min, num_hosts), "max": num_hosts}
    if spec.processes == "gpu":
        fields["processes"] = max(len(first.gpus), 1)
    logins = [machines[share.machine].login for share in allocation]
    if num_hosts == 1 and not logins[0]:
        fields["on"], fields["ssh"]["hosts"] = "local", []
        fields["env"]["CUDA_VISIBLE_DEVICES"] = _gpu_numbers(first.gpus)
        return check_job(fields, name)
    fields["on"] = "ssh"
    hosts = [login or share.machine for login, share in zip(logins, allocation, strict=True)]
    names = [host.rpartition("@")[2] for host in hosts]
    fields["ssh"] |= {
        "hosts": hosts,
        "gpus": {
            name: [gpu for gpu, _ in share.gpus]
            for name, share in zip(names, allocation, strict=True)
        },
        "host_options": {
            name: list(machines[share.machine].ssh_options)
            for name, share in zip(names, allocation, strict=True)
        },
    }
    return check_job(fields, name)


def _gpu_numbers(gpus: tuple[tuple[int, int], ...]) -> str:
    return ",".join(str(number) for number, _ in gpus)
