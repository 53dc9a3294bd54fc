"""The messages between the launcher and the agent of a host: one JSON object per line.

    agent     Hello, once, as soon as it is up
    launcher  Start, once every host's agent is up
    agent     Started per rank; Output and Exited as they come; or Refused, and nothing else
              Noticed before a rank is ended; FlightFile for each file of a rank, at the end
    launcher  Signal, End, Kill, any number of times; the end of its pipe means End

In an elastic job, the launcher sends these messages in place of Start:

    launcher  Reserve, whenever it wants to use more slots of the host
    agent     Reserved, once for each Reserve
    launcher  StartSlot, EndSlot and Expect, any number of times, and End after the last StartSlot
    agent     Started, Joined, Output and Exited per process; or NotStarted

The pipe belongs to ssh or to the launcher, so both ends belong to the same user. A line that is not
a message was printed by a login shell before the agent was up.
"""

import json
from dataclasses import asdict, dataclass
from typing import get_args

PROTOCOL = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Hello:
    """The agent is up; two free ports of its host are `free_port` and the next port."""

    protocol: int
    num_cores: int
    free_port: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """Start one rank for each element of `ranks`.

    An element has the environment variables of one rank, and `environ` has the variables that all
    ranks share. `terminal` has the file descriptors for standard output and standard error of the
    first rank; if it is empty, the agent creates pipes. With `nccl_plugin`, NCCL uses the net
    plugin that is installed on the agent's host. The flight records in `flight_folder`, if it is
    not "", are sent to the launcher at the end.
    """

    argv: tuple[str, ...]
    cwd: str
    environ: dict[str, str]
    ranks: tuple[dict[str, str], ...]
    grace_seconds: float
    terminal: tuple[int, ...] = ()
    nccl_plugin: bool = False
    flight_folder: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """The agent could not start the ranks; `reason` says why."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """A rank has started; `local_rank` is the rank's number within its host."""

    local_rank: int
    pid: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """Output of a rank, one character of `data` per byte; empty `data` marks the stream's end."""

    local_rank: int
    is_error: bool
    data: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Exited:
    """A rank has ended; `status` is its exit code, or the negative number of a signal."""

    local_rank: int
    status: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Noticed:
    """The state of a rank before it is ended, or that processes were killed for lack of memory."""

    local_rank: int
    state: str = ""
    oom_kills: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FlightFile:
    """A file that a rank has written; `name` is its path in the folder of flight records."""

    name: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Signal:
    """Send one signal to all ranks that are running."""

    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """End the ranks with SIGTERM, and with SIGKILL after the grace period."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kill:
    """End the ranks at once, with SIGKILL."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reserve:
    """Find `num_ports` free ports, one for each slot that the launcher will use from now on."""

    num_ports: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Reserved:
    """The `ports` are free on the agent's host, and differ from all earlier ones."""

    ports: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class StartSlot:
    """Start a process in an empty slot of an elastic job.

    The process gets the agent's environment without the variables `unset`, and with those of
    `environ`. When it has ended, the agent kills the processes that it leaves in its process group.
    The flight records in `flight_folder`, if it is not "", are sent to the launcher when the agent
    ends.
    """

    local_rank: int
    argv: tuple[str, ...]
    cwd: str
    environ: dict[str, str]
    unset: tuple[str, ...]
    grace_seconds: float
    nccl_plugin: bool = False
    flight_folder: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class NotStarted:
    """The agent could not start the process of one slot; `reason` says why."""

    local_rank: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Joined:
    """The process of a slot has become a member of an epoch of the elastic job."""

    local_rank: int
    epoch: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Expect:
    """Tell all processes the job's `slots` whose processes have started and will join."""

    slots: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class EndSlot:
    """End the process of one slot with SIGTERM, and with SIGKILL after the grace period."""

    local_rank: int


Message = (
    Hello
    | Start
    | Refused
    | Started
    | Output
    | Exited
    | Noticed
    | FlightFile
    | Signal
    | End
    | Kill
    | Reserve
    | Reserved
    | StartSlot
    | NotStarted
    | Joined
    | Expect
    | EndSlot
)

_TYPES: dict[str, type[Message]] = {kind.__name__: kind for kind in get_args(Message)}


def encode(message: Message) -> bytes:
    """Return the message as one line."""
    return json.dumps([type(message).__name__, asdict(message)]).encode() + b"\n"


def decode(line: bytes) -> Message | None:
    """Return the message in a line, or None if the line is no message."""
    try:
        name, fields = json.loads(line)
        return _TYPES[name](**fields)
    except (ValueError, TypeError, KeyError):
        return None
