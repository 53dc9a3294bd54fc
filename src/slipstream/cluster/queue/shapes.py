"""The values with which the queue plans: machines, what jobs ask for, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# States in which a job holds resources.
ACTIVE_STATES = ("starting", "running", "preempting", "cancelling")
END_STATES = ("succeeded", "failed", "cancelled")
JOB_STATES = ("waiting", "held", *ACTIVE_STATES, *END_STATES)


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueGpu:
    """One GPU of a machine.

    Args:
        kind: Name of the model, such as "H100".
        memory_mib: Memory in MiB.
    """

    kind: str
    memory_mib: int


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueMachine:
    """A machine on which the queue starts jobs.

    Args:
        name: Name of the host.
        gpus: Its GPUs, in the order of their numbers.
        cpus: Number of processors (default 1).
        memory_mib: Memory in MiB (default 0).
        accelerators: Numbers of other devices by name, such as {"fpga": 2} (default none).
        is_open: Whether jobs may start there (default True); a closed machine finishes its jobs.
        login: Destination for ssh (default "": the machine is the daemon's own host).
        ssh_options: Options for ssh, each without its -o (default none).
        group: Name of the group of machines to which it belongs (default "": none).
        resting_until: Time in seconds since 1970 until which no job starts there, because it could
            not be reached (default 0).
    """

    name: str
    gpus: tuple[QueueGpu, ...] = ()
    cpus: int = 1
    memory_mib: int = 0
    accelerators: Mapping[str, int] = field(default_factory=dict[str, int])
    is_open: bool = True
    login: str = ""
    ssh_options: tuple[str, ...] = ()
    group: str = ""
    resting_until: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourceRequest:
    """The resources that a job needs on each of its hosts, and the number of hosts.

    Args:
        gpus: Number of GPUs on each host (default 0).
        gpu: Text that the name of these GPUs contains (default "": any GPU).
        gpu_memory_mib: Memory of each GPU in MiB that the job uses (default 0: whole GPUs, which
            no other job uses at the same time).
        cpus: Number of processors on each host (default 1).
        memory_mib: Memory on each host in MiB (default 0).
        accelerators: Numbers of other devices on each host by name (default none).
        min_hosts: Smallest number of hosts with which the job starts (default 1).
        max_hosts: Largest number of hosts that it can use (default 1).
        on: Kind of its machines: "local" for the daemon's own host, "ssh" for hosts behind ssh,
            or "" (the default) for both.
    """

    gpus: int = 0
    gpu: str = ""
    gpu_memory_mib: int = 0
    cpus: int = 1
    memory_mib: int = 0
    accelerators: Mapping[str, int] = field(default_factory=dict[str, int])
    min_hosts: int = 1
    max_hosts: int = 1
    on: str = ""

    @property
    def key(self) -> tuple[object, ...]:
        """A value that is equal for equal requests, for sets and dictionaries."""
        numbers = (self.gpus, self.gpu_memory_mib, self.cpus, self.memory_mib)
        hosts = (self.min_hosts, self.max_hosts, self.on)
        return (self.gpu, *numbers, *hosts, *sorted(self.accelerators.items()))


@dataclass(frozen=True, kw_only=True, slots=True)
class HostShare:
    """The resources of one machine that a job holds.

    Args:
        machine: Name of the machine.
        gpus: Pairs of the number of a GPU and the memory on it in MiB.
        gpu_units: Sum over these GPUs of the fraction that the job holds, 1.0 for a whole one.
        cpus: Number of processors.
        memory_mib: Memory in MiB.
        accelerators: Numbers of other devices by name.
    """

    machine: str
    gpus: tuple[tuple[int, int], ...] = ()
    gpu_units: float = 0.0
    cpus: int = 0
    memory_mib: int = 0
    accelerators: Mapping[str, int] = field(default_factory=dict[str, int])


Allocation = tuple[HostShare, ...]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 GPU" or "2 GPUs"."""
    return f"{number} {noun}{'s' * (number != 1)}"


def gpu_units(allocation: Allocation) -> float:
    """Return the number of GPUs in an allocation; a share of a GPU counts as its fraction."""
    return sum(share.gpu_units for share in allocation)


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueJob:
    """A job as the scheduler sees it; times are seconds since 1970.

    Args:
        number: Number of the job.
        request: Resources that it needs.
        submitted_at: Time of its submission.
        user: Name of its user (default "").
        team: Name of its user's team (default "").
        priority: Priority (default 0); a larger number is more urgent.
        state: State, one of `JOB_STATES` (default "waiting").
        expected_seconds: Expected length in seconds, or None if nobody knows.
        preemptible: Whether it can go on from a checkpoint when it is started again.
        grace_seconds: Time in seconds for its checkpoint before it is killed (default 30).
        started_at: Time at which it began to hold its allocation, or None.
        preempted_at: Time at which it was told to make room, or None.
        allocation: Resources that it holds (default none).
        wanted_hosts: Number of hosts that it should have at most, or None for as many as it can
            use.
    """

    number: int
    request: ResourceRequest
    submitted_at: float
    user: str = ""
    team: str = ""
    priority: int = 0
    state: str = "waiting"
    expected_seconds: float | None = None
    preemptible: bool = False
    grace_seconds: float = 30.0
    started_at: float | None = None
    preempted_at: float | None = None
    allocation: Allocation = ()
    wanted_hosts: int | None = None

    @property
    def is_active(self) -> bool:
        """Whether the job holds resources."""
        return self.state in ACTIVE_STATES


@dataclass(frozen=True, kw_only=True, slots=True)
class Quota:
    """The limits and the weight of a user or of a team.

    Args:
        kind: "user" or "team".
        name: Name of the user or team.
        max_gpus: Largest number of GPUs at the same time, or None for no limit.
        max_jobs: Largest number of jobs at the same time, or None for no limit.
        weight: Share of the machines relative to other users (default 1).
    """

    kind: str
    name: str
    max_gpus: float | None = None
    max_jobs: int | None = None
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuePolicy:
    """The rules of the order of jobs.

    Args:
        ageing_seconds: Time of waiting that raises a job's priority by one (default a day), so
            that every job is first at some time.
        half_life_seconds: Time after which a used GPU second counts half in the order of users
            (default a week).
    """

    ageing_seconds: float = 86400.0
    half_life_seconds: float = 7 * 86400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueState:
    """Everything on which a decision of the scheduler depends.

    Args:
        jobs: Jobs that wait or hold resources; others are ignored.
        machines: All machines.
        now: Time in seconds since 1970.
        quotas: Limits and weights (default none).
        usage: GPU seconds that each user has used, with decay until `now` (default none).
        policy: Rules of the order of jobs.
        group: Name of the group of machines that is scaled, or "".
        coming: Machines of the group that may be created, as far as it is known what they have.
    """

    jobs: tuple[QueueJob, ...]
    machines: tuple[QueueMachine, ...]
    now: float
    quotas: tuple[Quota, ...] = ()
    usage: Mapping[str, float] = field(default_factory=dict[str, float])
    policy: QueuePolicy = QueuePolicy()
    group: str = ""
    coming: tuple[QueueMachine, ...] = ()
