"""The description of a job: program, hosts and environment, fixed before anything starts."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from slipstream.cluster.launch.hosts import Host, address_of_first
from slipstream.errors import UsageError
from slipstream.settings import (
    Launch,
    Settings,
    chosen_master,
    flight_environment,
    job_key_environment,
)

if TYPE_CHECKING:
    from slipstream.cluster.launch.connection import AgentConnection

# Prefixes of the variables that are passed on to other hosts, where all other variables keep their
# own values.
FORWARDED_PREFIXES = ("SLIPSTREAM_", "HOROVOD_", "OMP_", "MKL_", "NCCL_", "GLOO_", "TORCH_")
FORWARDED_NAMES = ("PYTHONPATH", "NO_COLOR")
# Variables that the launcher computes for each rank, so that the user may not set them.
RANK_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A program that runs as several ranks.

    Args:
        hosts: Hosts of the job; the first has rank 0, and ranks are numbered host by host.
        program: Path, module or command, followed by its arguments; the same on every host.
        cwd: Absolute path of the working directory, the same on every host.
        python: Path of the Python interpreter on the other hosts, where Slipstream must be
            installed; this host uses the interpreter of this process.
        environ: Environment variables of the launcher.
        module: Whether the program is a module, as with `python -m` (default False).
        chosen: Further environment variables for every rank (default none). SLIPSTREAM_* variables
            in `chosen` apply to the launcher too.
        ssh_options: `-o` options for ssh, such as `Port=2222` (default none); the user's own ssh
            configuration applies as well.
        grace_seconds: Time in seconds between SIGTERM and SIGKILL when the ranks are ended, 0 or
            more (default 3).
        nccl_plugin: Whether NCCL sends through Slipstream's net plugin (default False).
        flight_folder: Absolute path of the folder for flight records, the same on every host
            (default None: no records).
        awaited: Ranks whose ends end the job; the others, which serve them, get SIGTERM then. None
            (the default) for all ranks.
        connect: Function that connects to the agent of a host, given the job, the host and the
            descriptors of a terminal; None (the default) to start agents by ssh.

    Raises:
        UsageError: `chosen` has a variable that differs from rank to rank, such as RANK; or the
            program or `chosen` has a text or a name that the system gives to no program.
    """

    hosts: tuple[Host, ...]
    program: tuple[str, ...]
    cwd: str
    python: str
    environ: Mapping[str, str]
    module: bool = False
    chosen: Mapping[str, str] = field(default_factory=dict[str, str])
    ssh_options: tuple[str, ...] = ()
    grace_seconds: float = 3.0
    nccl_plugin: bool = False
    flight_folder: Path | None = None
    awaited: frozenset[int] | None = None
    connect: Callable[[Job, Host, Sequence[int]], AgentConnection] | None = None

    def __post_init__(self) -> None:
        for name in RANK_NAMES:
            if name in self.chosen:
                raise UsageError(
                    f"{name} is chosen as {self.chosen[name]!r}, but it follows from the hosts and"
                    " their ranks; use -n 2 or --hosts a:2,b:2 instead"
                )
        for name, value in self.chosen.items():
            if not name or "=" in name:
                raise UsageError(f"a variable is named {name!r}; allowed: a name without =")
            _check_text(name, "the name of a variable")
            _check_text(value, f"the variable {name}")
        for word in self.program:
            _check_text(word, "a word of the program")

    @property
    def world_size(self) -> int:
        """Number of ranks on all hosts."""
        return sum(host.slots for host in self.hosts)

    @property
    def effective_environ(self) -> dict[str, str]:
        """Environment variables of the launcher, with those in `chosen` added or replaced."""
        return {**self.environ, **self.chosen}

    def python_on(self, host: Host) -> str:
        """Return the Python interpreter of one of the job's hosts."""
        return sys.executable if host.is_local else self.python


def _check_text(text: str, place: str) -> None:
    """Refuse a text that the system gives to no program, as an argument or as a variable."""
    try:
        has_bytes = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        has_bytes = False
    if not has_bytes:
        raise UsageError(
            f"{place} is {text!r}; allowed: text without NUL and without lone surrogates"
        )


def program_argv(job: Job, host: Host) -> tuple[str, ...]:
    """Return the command for a host; a Python file or module runs under the host's interpreter."""
    if job.module:
        return (job.python_on(host), "-m", *job.program)
    if job.program[0].endswith(".py"):
        return (job.python_on(host), *job.program)
    return job.program


def job_environment(job: Job) -> dict[str, str]:
    """Return the variables that all ranks share: those in `job.chosen`, and the job's key.

    Raises:
        ConfigError: the environment sets a job key that cannot be used.
    """
    settings = Settings.from_environment(job.effective_environ)
    key = settings.load_job_key() or secrets.token_hex(32).encode()
    flight = {} if job.flight_folder is None else flight_environment(job.flight_folder)
    return {"PYTHONUNBUFFERED": "1", **job.chosen, **flight, **job_key_environment(key)}


def forwarded_environment(host: Host, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables to send to a host.

    This host needs none, because its agent inherits all variables of the launcher.
    """
    if host.is_local:
        return {}
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(FORWARDED_PREFIXES) or name in FORWARDED_NAMES
    }


def rank_environments(job: Job, index: int, master_port: int) -> tuple[dict[str, str], ...]:
    """Return torchrun's variables for each rank of one host.

    Args:
        job: Job of the ranks.
        index: Position of the host in `job.hosts`.
        master_port: Free port of the first host; the next port is free too.
    """
    host = job.hosts[index]
    first_rank = sum(earlier.slots for earlier in job.hosts[:index])
    chosen_addr, chosen_port = chosen_master(job.effective_environ)
    launches = (
        Launch(
            rank=first_rank + local_rank,
            local_rank=local_rank,
            world_size=job.world_size,
            local_world_size=host.slots,
            master_addr=chosen_addr or address_of_first(job.hosts),
            master_port=chosen_port or master_port,
            source="environment",
        )
        for local_rank in range(host.slots)
    )
    return tuple(launch.as_environment() | {"GROUP_RANK": str(index)} for launch in launches)
