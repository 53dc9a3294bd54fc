"""The rank of this process, read from the variables of the launcher that started it."""

import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from slipstream.errors import ConfigError
from slipstream.settings.kinds import integer

LaunchSource = Literal["environment", "openmpi", "pmi", "slurm", "single"]

DEFAULT_MASTER_PORT = 29500


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """The rank of this process, the number of ranks, and the address of rank 0.

    Args:
        rank: Rank of this process, 0 to world_size - 1.
        local_rank: Rank of this process among the ranks of its host, 0 to local_world_size - 1.
        world_size: Number of ranks of the job.
        local_world_size: Number of ranks on this host, or None if the launcher does not state it.
        master_addr: Host name or address of rank 0.
        master_port: Port at which rank 0's framework may listen; Slipstream uses the next port.
        source: Launcher whose variables were read; "environment" means torchrun or
            `slipstream run`.
    """

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int | None
    master_addr: str
    master_port: int
    source: LaunchSource

    def as_environment(self) -> dict[str, str]:
        """Return torchrun's variables, which `detect_launcher` and every framework understand.

        Horovod's variables are set too, for scripts that were written for Horovod. LOCAL_WORLD_SIZE
        is left out if the number of ranks on this host is not known.
        """
        environ = {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local_rank),
            "WORLD_SIZE": str(self.world_size),
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(self.master_port),
            "HOROVOD_RANK": str(self.rank),
            "HOROVOD_SIZE": str(self.world_size),
            "HOROVOD_LOCAL_RANK": str(self.local_rank),
        }
        if self.local_world_size == self.world_size:  # one host
            environ |= {"HOROVOD_CROSS_RANK": "0", "HOROVOD_CROSS_SIZE": "1"}
        if self.local_world_size is not None:
            environ["LOCAL_WORLD_SIZE"] = str(self.local_world_size)
            environ["HOROVOD_LOCAL_SIZE"] = str(self.local_world_size)
        return environ


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """The environment variables of one launcher.

    If several variables can hold the same value, the first that is set counts.

    Args:
        source: Launcher that sets the variables.
        marks: Variables that are all set if the ranks were started by this launcher.
        rank: Variable that holds the rank.
        world_size: Variables that hold the number of ranks.
        local_rank: Variables that hold the rank among the ranks of its host.
        local_world_size: Variables that hold the number of ranks on the host.
        job: Variables that differ between jobs, but are equal on all ranks of a job (default none).
        nodes: Variables that hold a Slurm list of the job's hosts; rank 0 runs on the first.
    """

    source: LaunchSource
    marks: tuple[str, ...]
    rank: str
    world_size: tuple[str, ...]
    local_rank: tuple[str, ...]
    local_world_size: tuple[str, ...]
    job: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ("SLURM_JOB_NODELIST",)


# The first launcher whose marks are set is used. MPI comes before Slurm, because mpirun inside a
# Slurm allocation starts one agent per host through srun, and SLURM_PROCID then counts agents. A
# batch script has SLURM_PROCID too, although no srun has started it; only srun sets
# SLURM_STEP_NUM_TASKS.
DIALECTS = (
    Dialect(
        source="environment",
        marks=("RANK",),
        rank="RANK",
        world_size=("WORLD_SIZE",),
        local_rank=("LOCAL_RANK",),
        local_world_size=("LOCAL_WORLD_SIZE",),
    ),
    Dialect(
        source="openmpi",
        marks=("OMPI_COMM_WORLD_RANK",),
        rank="OMPI_COMM_WORLD_RANK",
        world_size=("OMPI_COMM_WORLD_SIZE",),
        local_rank=("OMPI_COMM_WORLD_LOCAL_RANK",),
        local_world_size=("OMPI_COMM_WORLD_LOCAL_SIZE",),
        job=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    Dialect(
        source="pmi",
        marks=("PMI_RANK",),
        rank="PMI_RANK",
        world_size=("PMI_SIZE",),
        local_rank=("MPI_LOCALRANKID", "SLURM_LOCALID"),
        local_world_size=("MPI_LOCALNRANKS",),
        job=("SLURM_JOB_ID", "PMI_JOBID"),
    ),
    Dialect(
        source="slurm",
        marks=("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
        rank="SLURM_PROCID",
        world_size=("SLURM_STEP_NUM_TASKS",),
        local_rank=("SLURM_LOCALID",),
        local_world_size=("SLURM_STEP_TASKS_PER_NODE",),
        job=("SLURM_JOB_ID",),
        nodes=("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"),
    ),
)


def detect_launcher(environ: Mapping[str, str] = os.environ) -> Launch:
    """Read the rank of this process from the variables of torchrun, mpirun or srun.

    Args:
        environ: Environment variables, of which empty ones count as unset (default: this process's
            environment).

    Returns:
        The launch, with rank and number of ranks; rank 0 of 1 if no launcher's variables are set.

    Raises:
        ConfigError: a variable is missing or is no number, or the rank is not below the number of
            ranks.
    """
    for dialect in DIALECTS:
        if all(environ.get(name) for name in dialect.marks):
            return _read_launch(dialect, environ)
    return Launch(
        rank=0,
        local_rank=0,
        world_size=1,
        local_world_size=1,
        master_addr=environ.get("MASTER_ADDR") or "127.0.0.1",
        master_port=_master_port(environ, ()),
        source="single",
    )


def chosen_master(environ: Mapping[str, str]) -> tuple[str | None, int | None]:
    """Return MASTER_ADDR and MASTER_PORT, each None unless the user has set the variable.

    Raises:
        ConfigError: MASTER_PORT is not a port from 1 to 65534.
    """
    port = _master_port(environ, ()) if environ.get("MASTER_PORT") else None
    return environ.get("MASTER_ADDR") or None, port


def thread_environment(
    environ: Mapping[str, str], num_cores: int, num_ranks: int
) -> dict[str, str]:
    """Return OMP_NUM_THREADS with a rank's share of the cores, or {} if the user has set it."""
    if environ.get("OMP_NUM_THREADS"):
        return {}
    return {"OMP_NUM_THREADS": str(max(1, num_cores // num_ranks))}


def absolute_module_path(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with absolute paths in PYTHONPATH, valid in every directory."""
    items = environ.get("PYTHONPATH", "").split(os.pathsep)
    absolute = os.pathsep.join(os.path.abspath(item) for item in items if item)
    return {**environ, "PYTHONPATH": absolute}


def _read_launch(dialect: Dialect, environ: Mapping[str, str]) -> Launch:
    world_size = _number(dialect.world_size, 1, environ)
    rank = _number((dialect.rank,), 0, environ)
    if world_size is None or rank is None:
        raise ConfigError(f"{dialect.rank} is set, but {dialect.world_size[0]} is not; set both")
    if rank >= world_size:
        raise ConfigError(
            f"{dialect.rank} is {rank}; allowed: 0 to {world_size - 1}, because"
            f" {dialect.world_size[0]} is {world_size}"
        )
    local_world_size = _local_world_size(dialect, environ)
    local_rank = _number(dialect.local_rank, 0, environ)
    return Launch(
        rank=rank,
        local_rank=rank if local_rank is None else local_rank,
        world_size=world_size,
        local_world_size=local_world_size,
        master_addr=_master_addr(dialect, environ, one_host=local_world_size == world_size),
        master_port=_master_port(environ, dialect.job),
        source=dialect.source,
    )


def _number(names: tuple[str, ...], low: int, environ: Mapping[str, str]) -> int | None:
    for name in names:
        if environ.get(name):
            return integer(low, 2**31 - 1).read(name, environ[name])
    return None


def _local_world_size(dialect: Dialect, environ: Mapping[str, str]) -> int | None:
    """Return the number of ranks on this host, or None if the launcher does not state it.

    Slurm writes `2(x3)` for two ranks on each of three hosts. For hosts with different numbers of
    ranks, Slurm writes `4,2(x2)`, and does not state which number belongs to this host.
    """
    for name in dialect.local_world_size:
        text = environ.get(name, "")
        if dialect.source == "slurm":
            text = re.sub(r"\(x\d+\)$", "", text)
        if text and "," not in text:
            return integer(1, 2**31 - 1).read(name, text)
    return None


def _master_addr(dialect: Dialect, environ: Mapping[str, str], *, one_host: bool) -> str:
    if address := environ.get("MASTER_ADDR"):
        return address
    if one_host:
        return "127.0.0.1"
    for name in dialect.nodes:
        if environ.get(name):
            return _first_host(environ[name])
    raise ConfigError(
        f"MASTER_ADDR is not set, and {dialect.rank} does not say where rank 0 is; allowed: the"
        " host name or address of rank 0 (with mpirun: -x MASTER_ADDR=HOST)"
    )


def _first_host(nodes: str) -> str:
    """Return the first host of a Slurm list such as `gpu[03-07,12],login1`."""
    first = re.match(r"(?:[^,\[\]]|\[\w[^\]]*\])+", nodes)
    if first is None:
        raise ConfigError(f"the Slurm node list is {nodes!r}; allowed: names such as gpu[03-07]")
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", first[0])


def _master_port(environ: Mapping[str, str], job: tuple[str, ...]) -> int:
    """Return MASTER_PORT if it is set, otherwise the port that all ranks of the job derive.

    The ports 20000 to 29998 lie below the kernel's range for outgoing connections. Only even ports
    are chosen, because the next port is used as well.
    """
    if environ.get("MASTER_PORT"):
        return integer(1, 65534).read("MASTER_PORT", environ["MASTER_PORT"])
    for name in job:
        if value := environ.get(name):
            return 20000 + 2 * (zlib.crc32(value.encode()) % 5000)
    return DEFAULT_MASTER_PORT
