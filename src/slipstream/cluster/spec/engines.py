"""The options of each engine in a job description."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from slipstream.cluster.spec.model import SpecModel, Texts

EngineName = Literal["local", "ssh", "slurm", "k8s", "ray", "aws", "aliyun"]


class Ssh(SpecModel):
    """Options of hosts that ssh reaches."""

    hosts: Texts = ()
    """Hosts as for ssh, such as `me@node1`; those beyond the largest number are spare."""
    options: Texts = ()
    """Options that ssh gets with -o, such as `Port=2222`."""
    host_options: dict[str, Texts] = Field(default_factory=dict)
    """Further options for single hosts, such as `node1: [Port=2222]`."""
    identity: str = ""
    """Private key for ssh; by default that of your ssh configuration."""
    addresses: Texts = ()
    """Addresses at which the first host is reached by the others; by default all that it has."""
    gpus: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """Numbers of the GPUs that the job uses on single hosts, such as `node1: [0, 1]`; by default
    all of them. `processes: gpu` still counts all."""
    home: str = "~/.slipstream"
    """Folder for runs and environments on every host."""

    @model_validator(mode="after")
    def _hosts_fit(self) -> Ssh:
        for login in self.hosts:
            if not re.fullmatch(r"([^\s\0@-][^\s\0]*@)?[^\s\0@-][^\s\0@]*", login):
                raise ValueError(
                    f"hosts has {login!r}; allowed: hosts such as node1 or me@node1, without spaces"
                    " and without - at the start"
                )
        names = [login.rpartition("@")[2] for login in self.hosts]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"hosts has {name} more than once; name each host once")
        for field in ("host_options", "gpus"):
            for name in getattr(self, field):
                if names and name not in names:
                    raise ValueError(f"{field} has {name!r}; allowed: {', '.join(names)}")
        return self

    @model_validator(mode="after")
    def _home_fits(self) -> Ssh:
        if not re.fullmatch(r"(~|~?/[^\0\n]*)", self.home):
            raise ValueError(f"home is {self.home!r}; allowed: an absolute path, or ~/ and a path")
        return self


class Slurm(SpecModel):
    """Options of Slurm."""

    partition: str = ""
    """Partition."""
    account: str = ""
    """Account."""
    options: Texts = ()
    """Further lines for #SBATCH, such as `--constraint=ib`."""
    folder: str = ""
    """Folder that all nodes share, for the files of runs; by default `slipstream` in the home."""


class Kubernetes(SpecModel):
    """Options of Kubernetes."""

    namespace: str = "default"
    """Namespace."""
    image: str = ""
    """Container image, which has Slipstream."""
    context: str = ""
    """Context of the kubeconfig; by default the current one."""
    claims: dict[str, str] = Field(default_factory=dict)
    """Path at which each persistent volume claim is mounted, such as `datasets: /data`."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels of the nodes, such as `nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3`."""


class Ray(SpecModel):
    """Options of Ray."""

    address: str = ""
    """Address of the cluster's dashboard, such as `http://head:8265`; by default RAY_ADDRESS."""


class Cloud(SpecModel):
    """Options of a cloud."""

    region: str = ""
    """Region; by default that of your credentials."""
    zone: str = ""
    """Zone; by default the provider's choice."""
    instance_type: str = ""
    """Type of the machines; by default the cheapest that has the resources."""
    image: str = ""
    """Image of the machines; by default the newest Ubuntu."""
    spot: bool = False
    """Whether machines may be taken away for a lower price."""
    disk: int = Field(default=100, ge=10)
    """Size of the system disk in GiB."""
    data_disk: int = Field(default=0, ge=0)
    """Size of a further disk in GiB."""
    network: str = ""
    """Name of the virtual network; by default one of the run's own."""
    shared_folder: bool = False
    """Whether a network file system is created and mounted on all machines."""
    open_to: Texts = ()
    """Addresses that may use ssh, such as `203.0.113.7/32`; by default your own."""
    keep: bool = False
    """Whether the machines stay after the job, until the deadline."""
