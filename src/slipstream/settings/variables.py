"""The declarations of the `SLIPSTREAM_*` variables."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast, get_args

from slipstream.errors import ConfigError, reason_of
from slipstream.settings.kinds import (
    ADDRESSES,
    FLAG,
    INTERFACES,
    KEY,
    PATH,
    PORT,
    TEXT,
    InterfaceFilter,
    Kind,
    choice,
    integer,
    integers,
    seconds,
)
from slipstream.settings.launch import Launch

AlgorithmName = Literal["auto", "ring", "dimensions", "recursive_doubling", "binomial", "direct"]

CudaWait = Literal["stream", "host"]

CudaHierarchy = Literal["auto", "off"]

MAX_SEGMENT_BYTES = 262144

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable:
    """The declaration of an environment variable; `shown` describes the default of the variable."""

    name: str
    kind: Kind[Any]
    doc: str
    shown: str = ""
    unit: str = ""


def _named(
    name: str, kind: Kind[Any], doc: str, shown: str = "", unit: str = ""
) -> dict[str, Variable]:
    return {"variable": Variable(name=name, kind=kind, doc=doc, shown=shown, unit=unit)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The values of the `SLIPSTREAM_*` variables, each described in docs/settings.md.

    Build the object with `Settings.from_environment()`, because the constructor checks nothing.
    """

    port: int | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_PORT",
            PORT,
            "Port at which rank 0 listens for the other ranks if no framework provides a store.",
            "MASTER_PORT + 1",
        ),
    )
    iface: InterfaceFilter | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_IFACE",
            INTERFACES,
            "Allowed network interfaces; their names may differ between hosts.",
            "the interface of the route to the peers",
        ),
    )
    host_id: str | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_HOST_ID",
            TEXT,
            "Identifier of the host; ranks with the same one may use shared memory.",
            "ranks that can connect by a Unix socket share a host",
        ),
    )
    rack: str | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_RACK",
            TEXT,
            "Name of the rack; traffic between racks is as small as possible.",
            "all hosts are in one rack",
        ),
    )
    dimensions: tuple[int, ...] = field(
        default=(),
        metadata=_named(
            "SLIPSTREAM_DIMENSIONS",
            integers(1, 65536),
            "Sizes of the dimensions over which buffers are reduced, the innermost first; ranks are"
            " numbered in this order.",
            "ranks of a host, hosts of a rack, racks",
        ),
    )
    job_key: bytes | None = field(
        default=None,
        repr=False,
        metadata=_named(
            "SLIPSTREAM_JOB_KEY",
            KEY,
            "Key that every connection must prove to know; `slipstream run` makes one per job.",
            "none",
        ),
    )
    key_file: Path | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_KEY_FILE",
            PATH,
            "File with the job key, in place of SLIPSTREAM_JOB_KEY; only its owner may read it.",
            "none",
        ),
    )
    streams: int = field(
        default=0,
        metadata=_named(
            "SLIPSTREAM_STREAMS",
            integer(0, 64),
            "Connections per peer that carry bulk data; 0: the engine tunes the number, and the"
            " NCCL plugin uses 8.",
        ),
    )
    tls: bool = field(
        default=False,
        metadata=_named(
            "SLIPSTREAM_TLS",
            FLAG,
            "1: the connections between hosts are encrypted by TLS 1.3; equal on all ranks.",
        ),
    )
    congestion: str | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_CONGESTION",
            TEXT,
            "Congestion control of the connections, such as cubic, reno or bbr.",
            "the system's",
        ),
    )
    dscp: int = field(
        default=0,
        metadata=_named(
            "SLIPSTREAM_DSCP",
            integer(0, 63),
            "Differentiated services code point, by which switches can recognise this traffic.",
        ),
    )
    pacing_mbit: int = field(
        default=0,
        metadata=_named(
            "SLIPSTREAM_PACING_MBIT",
            integer(0, 1_000_000),
            "Highest rate of each connection, paced evenly; 0: no limit.",
            unit="Mbit/s",
        ),
    )
    nccl_threads: int = field(
        default=0,
        metadata=_named(
            "SLIPSTREAM_NCCL_THREADS",
            integer(0, 16),
            "Threads of the NCCL plugin that move data beside NCCL's own thread.",
        ),
    )
    segment_bytes: int = field(
        default=131072,
        metadata=_named(
            "SLIPSTREAM_SEGMENT_BYTES",
            integer(4096, MAX_SEGMENT_BYTES),
            "Largest piece of a buffer that one write carries.",
            unit="bytes",
        ),
    )
    eager_bytes: int = field(
        default=8192,
        metadata=_named(
            "SLIPSTREAM_EAGER_BYTES",
            integer(0, MAX_SEGMENT_BYTES),
            "Messages up to this size are sent before the receiver has asked for them.",
            unit="bytes",
        ),
    )
    peer_timeout_seconds: float = field(
        default=5.0,
        metadata=_named(
            "SLIPSTREAM_PEER_TIMEOUT",
            seconds(0.5, 3600),
            "Time without a message after which a peer counts as dead.",
            unit="seconds",
        ),
    )
    stall_seconds: float = field(
        default=60.0,
        metadata=_named(
            "SLIPSTREAM_STALL_SECONDS",
            seconds(0.5, 86400),
            "Time after which a live rank that has not submitted an operation is reported.",
            unit="seconds",
        ),
    )
    timeout_seconds: float = field(
        default=1800.0,
        metadata=_named(
            "SLIPSTREAM_TIMEOUT",
            seconds(0.1, 604800),
            "Longest time of an operation; after it, the operation fails on every rank.",
            unit="seconds",
        ),
    )
    connect_timeout_seconds: float = field(
        default=120.0,
        metadata=_named(
            "SLIPSTREAM_CONNECT_TIMEOUT",
            seconds(0.5, 86400),
            "Longest time to wait at the start until all ranks are connected.",
            unit="seconds",
        ),
    )
    algorithm: AlgorithmName = field(
        default="auto",
        metadata=_named(
            "SLIPSTREAM_ALGORITHM",
            choice(*get_args(AlgorithmName)),
            "Algorithm for every collective that it can compute; auto: the engine chooses.",
        ),
    )
    cuda_wait: CudaWait = field(
        default="stream",
        metadata=_named(
            "SLIPSTREAM_CUDA_WAIT",
            choice(*get_args(CudaWait)),
            "What waits for a collective on GPU tensors: the stream, or also the host, which then"
            " raises the error of a failure at once.",
        ),
    )
    cuda_hierarchy: CudaHierarchy = field(
        default="auto",
        metadata=_named(
            "SLIPSTREAM_CUDA_HIERARCHY",
            choice(*get_args(CudaHierarchy)),
            "auto: where every rank has a GPU of its own and each host several, NCCL reduces within"
            " hosts and slipstream between them; off: slipstream does both.",
        ),
    )
    deterministic: bool = field(
        default=False,
        metadata=_named(
            "SLIPSTREAM_DETERMINISTIC",
            FLAG,
            "1: parameters that could change a bit of a result are not tuned, so all runs have the"
            " same results.",
            "0",
        ),
    )
    profile: Path | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_PROFILE",
            PATH,
            "File in which rank 0 stores the tuned parameters; the next run with the same numbers"
            " of ranks and hosts starts from them.",
            "none",
        ),
    )
    timeline: Path | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_TIMELINE",
            PATH,
            "File for the timeline of operations (Chrome trace format); `{rank}` in the name"
            " is replaced by the rank; without it, only rank 0 writes a file.",
            "none",
        ),
    )
    home: Path | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_HOME",
            PATH,
            "Folder for the records of runs, clusters and the queue, on every host.",
            "~/.slipstream",
        ),
    )
    checkpoint: str | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_CHECKPOINT",
            TEXT,
            "Folder or URL for checkpoints, which `slipstream run` takes from the job file.",
            "none",
        ),
    )
    plan: str | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_PLAN",
            TEXT,
            "Strategy of a forecast's plan as JSON, such as the micro-batch and the codec, for the"
            " script; `slipstream run --plan` sets it.",
            "none",
        ),
    )
    stop_at: str | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_STOP_AT",
            TEXT,
            "For tests: number of the outside call at which `slipstream run` and `slipstream"
            " cluster` kill themselves, after `before:` or `after:`.",
            "none",
        ),
    )
    queue_job: int | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_QUEUE_JOB",
            integer(1, 2**31 - 1),
            "Number of the job in the queue; `slipstream queue` sets it.",
            "none",
        ),
    )
    queue_token: str | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_QUEUE_TOKEN",
            TEXT,
            "Name of this start of the job; `slipstream queue` sets it, and finds the processes of"
            " the job by it.",
            "none",
        ),
    )
    queue_hosts: str | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_QUEUE_HOSTS",
            TEXT,
            "Hosts of the job, separated by commas; `slipstream queue` sets it.",
            "none",
        ),
    )
    gpu_memory: int | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_GPU_MEMORY",
            integer(1, 2**31 - 1),
            "Memory of each GPU that the job may use; `slipstream queue` sets it for a job with"
            " shares of GPUs.",
            "all of it",
            "MiB",
        ),
    )
    progress_file: Path | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_PROGRESS_FILE",
            PATH,
            "File to which the job's rank 0 adds its samples per second; `slipstream queue` and"
            " `slipstream run` with an engine set it.",
            "none",
        ),
    )
    reports_steps: bool = field(
        default=False,
        metadata=_named(
            "SLIPSTREAM_REPORT_STEPS",
            FLAG,
            "Whether `slipstream.steps.report_step` writes marks into standard error; `slipstream"
            " run` with an engine sets it for jobs with `retry.hang_progress`.",
        ),
    )
    flight_dir: Path | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_FLIGHT_DIR",
            PATH,
            "Folder in which each rank writes a flight record after a fault, for `slipstream"
            " explain`; `slipstream run` makes a folder in it for each job.",
            "none; under `slipstream run`, the folder slipstream-flight",
        ),
    )

    min_ranks: int = field(
        default=1,
        metadata=_named(
            "SLIPSTREAM_MIN_RANKS",
            integer(1, 1_000_000),
            "Smallest number of ranks with which an elastic job trains; `slipstream run --min` sets"
            " it.",
        ),
    )
    max_ranks: int | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_MAX_RANKS",
            integer(1, 1_000_000),
            "Largest number of ranks of an elastic job; `slipstream run --max` sets it.",
            "the job is not elastic",
        ),
    )
    member_port: int | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_MEMBER_PORT",
            PORT,
            "Port at which this process of an elastic job listens for processes that join;"
            " `slipstream run` chooses one for each slot.",
            "none",
        ),
    )
    members: tuple[tuple[str, int], ...] = field(
        default=(),
        metadata=_named(
            "SLIPSTREAM_MEMBERS",
            ADDRESSES,
            "Addresses at which members of an elastic job may be found; `slipstream run` lists all"
            " slots that it knows when it starts the process.",
            "none",
        ),
    )
    joins: bool = field(
        default=False,
        metadata=_named(
            "SLIPSTREAM_JOINS",
            FLAG,
            "1: this process joins an elastic job that runs, and gets its rank when it has joined;"
            " `slipstream run` sets it.",
            "0",
        ),
    )
    hosts_may_join: bool = field(
        default=False,
        metadata=_named(
            "SLIPSTREAM_HOSTS_MAY_JOIN",
            FLAG,
            "1: processes on other hosts may join this elastic job, so this process listens at an"
            " address that they can reach even if all members are on one host; `slipstream run`"
            " sets it with --hosts-from or several hosts.",
            "0",
        ),
    )
    member_fd: int | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_MEMBER_FD",
            integer(3, 1 << 30),
            "File descriptor of a socket to which a process of an elastic job writes the number of"
            " each epoch that it enters, and from which it reads the slots of processes that will"
            " join; `slipstream run` opens it.",
            "none",
        ),
    )
    slot: int | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_SLOT",
            integer(0, 1_000_000),
            "Number of the process's slot on its host, from 0. In an elastic job, it chooses a GPU,"
            " because ranks change. `slipstream run` sets it.",
            "none",
        ),
    )

    job_slot: int | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_JOB_SLOT",
            integer(0, 1_000_000),
            "Number of the process's slot in the elastic job, from 0; processes that join together"
            " get their ranks in this order. `slipstream run` sets it.",
            "none",
        ),
    )
    host_name: str | None = field(
        default=None,
        metadata=_named(
            "SLIPSTREAM_HOST_NAME",
            TEXT,
            "Name of this host in the list of hosts; `slipstream run` sets it.",
            "the name that the host itself has",
        ),
    )
    whole_hosts: bool = field(
        default=False,
        metadata=_named(
            "SLIPSTREAM_WHOLE_HOSTS",
            FLAG,
            "1: when a rank of an elastic job is lost, the other ranks of its host leave too, as in"
            " Horovod.",
            "0",
        ),
    )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Settings":
        """Read every `SLIPSTREAM_*` variable.

        Args:
            environ: Environment variables, of which empty ones count as unset (default: this
                process's environment).

        Returns:
            The settings; unset variables have their defaults. An unknown `SLIPSTREAM_*` variable
            has no effect except for a warning.

        Raises:
            ConfigError: a value is not allowed, or both SLIPSTREAM_JOB_KEY and SLIPSTREAM_KEY_FILE
                are set.
        """
        declared = variables()
        values = {
            attribute: variable.kind.read(variable.name, environ[variable.name])
            for attribute, variable in declared.items()
            if environ.get(variable.name)
        }
        if "job_key" in values and "key_file" in values:
            raise ConfigError(
                "SLIPSTREAM_JOB_KEY and SLIPSTREAM_KEY_FILE are both set; unset one of them"
            )
        names = sorted(variable.name for variable in declared.values())
        for name in environ:
            if name.startswith("SLIPSTREAM_") and name not in names:
                _log.warning("%s has no effect; allowed: %s", name, ", ".join(names))
        return cls(**values)

    def listen_port(self, launch: Launch) -> int:
        """Return the port at which rank 0 listens for the other ranks, if no framework does so."""
        return self.port if self.port is not None else launch.master_port + 1

    def load_job_key(self) -> bytes | None:
        """Return the job key from SLIPSTREAM_JOB_KEY or the key file; None if neither is set.

        Raises:
            ConfigError: the key file cannot be read, other users may read it, or the key is too
                short.
        """
        if self.key_file is None:
            return self.job_key
        received = f"SLIPSTREAM_KEY_FILE is {str(self.key_file)!r}"
        try:
            mode = self.key_file.stat().st_mode & 0o777
            text = self.key_file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{received}, which cannot be read: {reason_of(error)}") from error
        if mode & 0o077:
            raise ConfigError(
                f"{received}, which other users may use (mode {mode:o}); allowed: use by its"
                f" owner only; run chmod 600 {self.key_file}"
            )
        return KEY.read(f"the key in {self.key_file}", text)


def job_key_environment(key: bytes) -> dict[str, str]:
    """Return the variables that pass a job key to a child process."""
    return {"SLIPSTREAM_JOB_KEY": key.decode(), "SLIPSTREAM_KEY_FILE": ""}


def variables() -> dict[str, Variable]:
    """Return the declaration of each field of `Settings`, by the field's name."""
    return {item.name: _declaration(item.metadata, item.default) for item in fields(Settings)}


def _declaration(metadata: Mapping[Any, Any], default: object) -> Variable:
    variable = cast(Variable, metadata["variable"])
    if variable.shown:
        return variable
    return Variable(
        name=variable.name,
        kind=variable.kind,
        doc=variable.doc,
        shown=str(default),
        unit=variable.unit,
    )
