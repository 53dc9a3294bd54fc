"""The placement of a run: all that its head and its host daemons must know, in one secret file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from slipstream.cluster.head.container import ContainerImage, parse_container
from slipstream.cluster.head.roles import RolePart, parse_roles
from slipstream.cluster.head.storage.buckets import StorageBucket
from slipstream.errors import ConfigError

FILE_NAME = "placement.json"
JOURNAL = "journal.jsonl"
HEAD_SEEN = "head.seen"  # file that a host daemon touches at each message of the head
ENDED = "ended"  # file that the head writes after the last entry of the journal


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryRules:
    """The rules by which the head starts a job again after a failure.

    Args:
        max_restarts: Largest number of new starts of the whole job (default 3). Losses of hosts do
            not count.
        scope: "group" (the default): a failure starts all ranks again. "worker": the ranks are
            members of an elastic job, and a failed process is replaced alone.
        backoff_seconds: Shortest and longest time in seconds before a new start; it doubles with
            each failure in a row (default 1 and 60).
        permanent_codes: Exit codes after which the job is not started again (default 2, wrong
            usage).
        silence_seconds: Time in seconds without a line of output and without progress after which
            the ranks are judged to hang and are started again; 0 (the default) for never.
        progress_seconds: Time in seconds without another step, once ranks have reported steps,
            after which they are judged to hang; 0 (the default) for never.
        bad_host_failures: Number of failures in a row that begin on one host, after which it is not
            used (default 3).
        bad_host_seconds: Time in seconds for which such a host is not used (default 3600).
    """

    max_restarts: int = 3
    scope: Literal["group", "worker"] = "group"
    backoff_seconds: tuple[float, float] = (1.0, 60.0)
    permanent_codes: tuple[int, ...] = (2,)
    silence_seconds: float = 0.0
    progress_seconds: float = 0.0
    bad_host_failures: int = 3
    bad_host_seconds: float = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPlacement:
    """A run on its hosts.

    Args:
        run: Identifier of the run, which is also the name of its folder.
        program: Path, module or command, followed by its arguments.
        cwd: Absolute path of the working directory, the same on every host.
        hosts: Names of the first hosts; the first of them has rank 0.
        min_hosts: Smallest number of hosts with which the job starts.
        max_hosts: Largest number of hosts.
        processes: Number of ranks on each host; 0 (the default) for the number of its GPUs, or one.
        module: Whether the program is a Python module (default False).
        python: Path of Python on the hosts (default "python3").
        environ: Variables for every rank, which may be secret (default none).
        roles: Roles of the ranks (default none: all ranks run `program`).
        gpu_memory_gib: Share in GiB of a GPU's memory that each rank may use; 0 (the default) for
            all of it.
        buckets: Buckets whose files the head sends back at the end (default none).
        container: Image in which the ranks run (default None: on the host itself).
        heads: Addresses of the head's host, of which the host daemons use the first that answers;
            empty (the default) if the ranks run on the head's own host, without host daemons.
        head_port: Port at which the head listens (default 0, if there are no host daemons).
        certificate: Certificate of the run in PEM format (default "").
        private_key: Its private key in PEM format (default "").
        retry: Rules for new starts.
        cloud: Name of the cloud, "aws" or "aliyun", whose notices that it takes a host away are
            heeded; empty (the default) for none.
        deadline_at: Time at which everything ends in seconds since 1970; None (the default) for
            never.
        grace_seconds: Time in seconds between SIGTERM and SIGKILL (default 30).
        host_wait_seconds: Time in seconds for which the head waits for all hosts, after a host was
            lost, before it goes on with fewer (default 60).
        lost_seconds: Time in seconds for which fewer than `min_hosts` hosts may be there, and for
            which a host daemon looks for the head (default 600).
        outputs: Patterns of the files that the client brings back (default none).
        outputs_wait_seconds: Time in seconds for which a host that a scheduler lends waits for
            this (default 3600).
    """

    run: str
    program: tuple[str, ...]
    cwd: str
    hosts: tuple[str, ...]
    min_hosts: int
    max_hosts: int
    processes: int = 0
    module: bool = False
    python: str = "python3"
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    roles: tuple[RolePart, ...] = ()
    gpu_memory_gib: float = 0.0
    buckets: tuple[StorageBucket, ...] = ()
    container: ContainerImage | None = None
    heads: tuple[str, ...] = ()
    head_port: int = 0
    certificate: str = ""
    private_key: str = ""
    retry: RetryRules = RetryRules()
    cloud: str = ""
    deadline_at: float | None = None
    grace_seconds: float = 30.0
    host_wait_seconds: float = 60.0
    lost_seconds: float = 600.0
    outputs: tuple[str, ...] = ()
    outputs_wait_seconds: float = 3600.0

    def as_text(self) -> str:
        """Return the placement as JSON; it contains secrets."""
        return json.dumps(asdict(self), indent=1)

    def write(self, folder: Path) -> None:
        """Write the placement into a run's folder, readable by its owner only, in one step."""
        path = folder / FILE_NAME
        temporary = path.with_suffix(".new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(self.as_text())
        temporary.replace(path)


def read_placement(folder: Path) -> RunPlacement:
    """Return the placement in a run's folder.

    Raises:
        ConfigError: there is none, or it is of another version of Slipstream.
    """
    path = folder / FILE_NAME
    try:
        return parse_placement(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{path} is no placement ({error}); install the same version of Slipstream on all hosts"
        ) from error


def parse_placement(text: str) -> RunPlacement:
    """Return the placement in a JSON text; raise ValueError, TypeError or KeyError for another."""
    fields: dict[str, Any] = json.loads(text)
    rules: dict[str, Any] = fields["retry"]
    for table, names in (
        (fields, ("program", "hosts", "heads", "outputs")),
        (rules, ("backoff_seconds", "permanent_codes")),
    ):
        for name in names:
            table[name] = tuple(table[name])
    fields["retry"] = RetryRules(**rules)
    fields["roles"] = parse_roles(fields["roles"])
    fields["container"] = parse_container(fields["container"])
    fields["buckets"] = tuple(StorageBucket(**bucket) for bucket in fields["buckets"])
    return RunPlacement(**fields)
