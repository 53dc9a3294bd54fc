"""The parts of a job description: code, software, resources, data and the rules for failures."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from pydantic import Field, model_validator

from slipstream.cluster.spec.model import Command, Duration, Gibibytes, SpecModel, Texts


class Code(SpecModel):
    """The files that are brought to every host."""

    folder: str = "."
    """Folder on this machine whose files are brought, relative to the job file."""
    exclude: Texts = (".git", ".venv", "__pycache__", "slipstream-flight")
    """Names and patterns of files that are not brought, in rsync's notation."""
    git: str = ""
    """URL of a git repository to bring in place of the folder."""
    commit: str = "HEAD"
    """Commit, branch or tag of the git repository."""

    @model_validator(mode="after")
    def _commit_has_repository(self) -> Code:
        if self.commit != "HEAD" and not self.git:
            raise ValueError(
                f"commit is {self.commit!r} without git, the URL of its repository; a folder is"
                " brought as it is"
            )
        return self


class HostSoftware(SpecModel):
    """The software on every host."""

    python: str = "python3"
    """Python on the hosts: the interpreter with which the environment is made, by name or path."""
    environment: Literal["create", "existing"] = "create"
    """`create` makes an environment for the run, once for each list of packages; `existing` uses
    the environment of `python`, where Slipstream must be installed."""
    packages: Texts = ()
    """Packages to install, as for pip: `torch==2.13.0`."""
    requirements: str = ""
    """Requirements file to install, relative to the job file."""
    index: str = ""
    """URL of the package index; by default that of pip on the host."""
    wheels: str = ""
    """Folder on this machine with wheels, which are brought to hosts without an index."""
    cuda: str = ""
    """Version of CUDA that every host must have, such as `12`; checked before the start."""
    cudnn: str = ""
    """Version of cuDNN that every host must have, such as `9`; checked before the start."""
    frameworks: dict[str, str] = Field(default_factory=dict)
    """Versions of frameworks, such as `torch: 2.13`, which are installed, or checked in an existing
    environment."""
    setup: str = ""
    """Shell commands that every host runs once before the start, in the folder of the code."""

    @model_validator(mode="after")
    def _has_effect(self) -> HostSoftware:
        for name in ("packages", "requirements", "index", "wheels"):
            if self.environment == "existing" and getattr(self, name):
                raise ValueError(
                    f"{name} is installed into an environment that is made, and environment is"
                    " existing; leave one of them out"
                )
        if self.index and self.wheels:
            raise ValueError("index and wheels are given; allowed: one of them")
        return self


class HostResources(SpecModel):
    """The resources of each host."""

    gpus: int = Field(default=0, ge=0)
    """Number of GPUs that each host must have."""
    gpu: str = ""
    """Text that the name of these GPUs must contain, such as `H100`."""
    gpu_memory: Gibibytes | None = None
    """Share of a GPU's memory that each rank may use, such as `8GiB`; by default all of it."""
    cpus: int = Field(default=0, ge=0)
    """Number of processors that each host must have."""
    memory: Gibibytes | None = None
    """Memory that each host must have, such as `32GiB`."""
    disk: Gibibytes | None = None
    """Free disk space that each host must have, such as `50GiB`."""
    accelerators: dict[str, int] = Field(default_factory=dict)
    """Other devices that each host must have, such as `fpga: 1`; each file `/dev/NAME*` is one."""


class Retry(SpecModel):
    """The rules by which a job is started again; the words are those of AIMaster."""

    max_restarts: int = Field(default=3, ge=0)
    """Largest number of new starts of the whole job; losses of hosts do not count."""
    scope: Literal["group", "worker"] = "group"
    """`group`: a failure starts all ranks again, from the last checkpoint. `worker`: the program is
    an elastic training, and a failed process is replaced alone."""
    backoff: tuple[Duration, Duration] = (1.0, 60.0)
    """Shortest and longest time before a new start; it doubles with each failure in a row."""
    permanent_codes: tuple[int, ...] = (2,)
    """Exit codes after which the job is not started again."""
    hang: Duration | None = None
    """Time without a line of output after which the ranks count as hung, such as `30m`."""
    hang_progress: Duration | None = None
    """Time without another step, once the program has reported one with
    `slipstream.steps.report_step`, after which the ranks count as hung although they print."""
    bad_host_failures: int = Field(default=3, ge=1)
    """Number of failures in a row that begin on one host, after which the host is not used."""
    bad_host_time: Duration = 3600.0
    """Time for which such a host is not used."""
    host_wait: Duration = 60.0
    """Time for which the job waits for a replacement of a lost host before it shrinks."""
    lost: Duration = 600.0
    """Time for which fewer than the least number of hosts may be there."""


class Role(SpecModel):
    """The ranks of one role, such as worker or ps."""

    count: int = Field(default=1, ge=1)
    """Number of ranks."""
    command: Command | None = None
    """Program and arguments of these ranks; by default those of the job."""


class Data(SpecModel):
    """Data that is brought to every host before the start."""

    source: str = Field(min_length=1)
    """URL of a file or folder: a local path, `s3://`, `oss://` or `hdfs://` (fsspec)."""
    path: str = Field(min_length=1)
    """Folder on the host that gets it, below the folder of the code; other files in it stay."""

    @model_validator(mode="after")
    def _is_below_the_code(self) -> Data:
        path = PurePosixPath(self.path)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise ValueError(
                f"path is {self.path!r}; allowed: a folder below that of the code, such as `data`,"
                " without `..`"
            )
        return self
