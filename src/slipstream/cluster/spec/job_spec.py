"""The description of a job: everything that `slipstream run` needs to run it anywhere."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from slipstream.cluster.head.storage.output_names import checked_patterns
from slipstream.cluster.spec.container import Container
from slipstream.cluster.spec.engines import Cloud, EngineName, Kubernetes, Ray, Slurm, Ssh
from slipstream.cluster.spec.model import (
    Command,
    Dollars,
    Duration,
    Name,
    SpecModel,
    Texts,
    VariableName,
    Word,
)
from slipstream.cluster.spec.parts import Code, Data, HostResources, HostSoftware, Retry, Role
from slipstream.cluster.spec.storage import JobStorage

MAX_HOSTS = 10_000
MAX_PROCESSES = 1024  # ranks of one host
_DEVICE = r"\w[\w.-]*(/\w[\w.-]*)*"  # the name of a file or of a resource, without .. in it


class HostRange(SpecModel):
    """The number of hosts; written `4`, `2:4` or with both fields."""

    min: int = Field(default=1, ge=1, le=MAX_HOSTS)
    """Smallest number of hosts with which the job goes on."""
    max: int = Field(default=1, ge=1, le=MAX_HOSTS)
    """Largest number of hosts."""

    @model_validator(mode="after")
    def _in_order(self) -> HostRange:
        if self.min > self.max:
            raise ValueError(f"{self.min}:{self.max} has its least number above its largest one")
        return self


def _host_range(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return {"min": value, "max": value}
    if isinstance(value, str):
        least, colon, most = value.partition(":")
        if least.isdecimal() and (most.isdecimal() or not colon):
            return {"min": int(least), "max": int(most or least)}
        raise ValueError(f"{value!r} is no number of hosts; allowed: 4 or 2:4")
    return value


def _processes(value: Any) -> Any:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if value != "gpu" and not (is_number and 1 <= value <= MAX_PROCESSES):
        raise ValueError(
            f"it is no number of ranks of a host; allowed: 1 to {MAX_PROCESSES}, or gpu"
        )
    return value


class JobSpec(SpecModel):
    """The description of a job."""

    name: Name
    """Name of the run: at most 32 lower-case letters, digits and hyphens, a letter first; by
    default that of the job file."""
    command: Command
    """Program and arguments, as a text or a list: `train.py --lr 0.1`. A .py file runs with the
    Python of the hosts' environment."""
    module: bool = False
    """Whether the program is a Python module, as with `python -m`."""
    on: EngineName = "local"
    """Engine: local, ssh, slurm, k8s, ray, aws or aliyun; `--on` overrides it."""
    hosts: Annotated[HostRange, BeforeValidator(_host_range)] = HostRange()
    """Number of hosts, such as 4, or 2:4 for at least 2 and at most 4."""
    processes: Annotated[int | Literal["gpu"], BeforeValidator(_processes)] = "gpu"
    """Number of ranks on each host; `gpu` stands for one for each GPU, or one."""
    plan: str = ""
    """File of `slipstream forecast --json`, relative to the job file. Its first plan fills hosts,
    processes, resources, env, deadline, cost_cap, and for machines of a cloud also `on` and
    `cloud`, where the job does not set them."""
    roles: dict[str, Role] = Field(default_factory=dict)
    """Roles of the ranks in their order, such as `ps: {count: 1}` and `worker: {count: 3}`; their
    counts add up to the ranks of all hosts. Ranks get TF_CONFIG, and with a role `scheduler` also
    DMLC_*. The roles ps, server and scheduler end with the others."""
    env: dict[VariableName, Word] = Field(default_factory=dict)
    """Environment variables of every rank; they are recorded, so they may not be secret."""
    secrets: Texts = ()
    """Names of variables whose values every rank gets from this machine, without a record."""
    code: Code = Code()
    """Files that are brought to every host."""
    software: HostSoftware = HostSoftware()
    """Software on every host."""
    container: Container = Container()
    """Container of the ranks."""
    resources: HostResources = HostResources()
    """Resources of each host."""
    data: tuple[Data, ...] = ()
    """Data that is brought to every host."""
    storage: dict[str, JobStorage] = Field(default_factory=dict)
    """Storage that every host mounts or copies, by a name of your choice, such as
    `datasets: {nfs: "nas:/export", path: /data}`; for the engines local and ssh, and clouds."""
    retry: Retry = Retry()
    """Rules for new starts after failures."""
    deadline: Duration | None = None
    """Longest time of the run, such as `8h`; then everything is ended and given back."""
    cost_cap: Dollars | None = None
    """Largest cost of the run in US dollars; the run ends before it would be exceeded."""
    grace: Duration = 30.0
    """Time between SIGTERM and SIGKILL when the job is ended before its time."""
    checkpoint: str = ""
    """Folder or URL of checkpoints, which ranks get as SLIPSTREAM_CHECKPOINT; a folder is relative
    to the code."""
    outputs: Annotated[Texts, AfterValidator(checked_patterns)] = ()
    """Files and folders that are brought back at the end, relative to the code; patterns are
    allowed."""
    outputs_wait: Duration = 3600.0
    """Time for which the first host waits for you to bring the outputs back, in Kubernetes and Ray,
    where they are lost after it."""
    tensorboard: str = ""
    """Folder with TensorBoard's files, relative to the code."""
    ssh: Ssh = Ssh()
    """Options of ssh hosts."""
    slurm: Slurm = Slurm()
    """Options of Slurm."""
    k8s: Kubernetes = Kubernetes()
    """Options of Kubernetes."""
    ray: Ray = Ray()
    """Options of Ray."""
    cloud: Cloud = Cloud()
    """Options of AWS and Alibaba Cloud."""

    @model_validator(mode="after")
    def _storage_fits(self) -> JobSpec:
        if self.storage and self.on in ("slurm", "k8s", "ray"):
            raise ValueError(
                f"storage is mounted by the engines local and ssh, and in clouds, not by {self.on};"
                " mount it on the nodes, or name claims in k8s.claims"
            )
        return self

    @model_validator(mode="after")
    def _container_fits(self) -> JobSpec:
        if not self.container.image:
            return self
        if self.on not in ("ssh", "aws", "aliyun"):
            raise ValueError(
                f"container.image is for ssh hosts and clouds, not for {self.on}; say --on ssh -H"
                " localhost for this host, or k8s.image for Kubernetes"
            )
        wanted = self.software
        for name in ("packages", "requirements", "frameworks", "setup"):
            if getattr(wanted, name):
                raise ValueError(
                    f"software.{name} is for ranks on the host itself; put it into the image"
                    f" {self.container.image}"
                )
        return self

    @model_validator(mode="after")
    def _accelerators_fit(self) -> JobSpec:
        for name, count in self.resources.accelerators.items():
            if not re.fullmatch(_DEVICE, name, re.ASCII):
                raise ValueError(
                    f"resources.accelerators has the name {name!r}; allowed: letters, digits and"
                    " . _ - / as in fpga or xilinx.com/u250, without . at the start of a part"
                )
            if count < 0:
                raise ValueError(f"resources.accelerators.{name} is {count}; allowed: 0 or more")
        return self

    @model_validator(mode="after")
    def _repository_fits(self) -> JobSpec:
        if self.code.git.startswith("-"):
            raise ValueError(
                f"code.git is {self.code.git!r}; allowed: a URL, without - at its start"
            )
        return self

    @model_validator(mode="after")
    def _backoff_fits(self) -> JobSpec:
        shortest, longest = self.retry.backoff
        if shortest > longest:
            raise ValueError(
                f"retry.backoff is {shortest:g} s and {longest:g} s; allowed: the shortest time"
                " first, then the longest one"
            )
        return self

    @model_validator(mode="after")
    def _roles_fit(self) -> JobSpec:
        if not self.roles:
            return self
        count = sum(role.count for role in self.roles.values())
        if self.processes == "gpu" or self.hosts.min != self.hosts.max:
            raise ValueError("roles need a number of processes, and one number of hosts")
        ranks = self.hosts.max * self.processes
        if count != ranks:
            raise ValueError(
                f"the roles have {count} ranks, and {self.hosts.max} hosts with {self.processes}"
                f" processes have {ranks}"
            )
        if self.retry.scope != "group":
            raise ValueError("roles need retry.scope: group")
        return self
