"""The messages between the launcher and the agent of a host: one JSON object per line.

    agent     Hello, once, as soon as it is up
    launcher  Start, once every host's agent is up
    agent     Started per rank; Output and Exited as they come; or Refused, and nothing else
    launcher  Signal, End, Kill, any number of times; the end of its pipe means End

The pipe belongs to ssh or to the launcher, so both ends belong to the same user. A line that is not
a message was printed by a login shell before the agent was up.
"""

import json
from dataclasses import asdict, dataclass

PROTOCOL = 2


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
    plugin that is installed on the agent's host.
    """

    argv: tuple[str, ...]
    cwd: str
    environ: dict[str, str]
    ranks: tuple[dict[str, str], ...]
    grace_seconds: float
    terminal: tuple[int, ...] = ()
    nccl_plugin: bool = False


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
class Signal:
    """Send one signal to all ranks that are running."""

    number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """End the ranks with SIGTERM, and with SIGKILL after the grace period."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kill:
    """End the ranks at once, with SIGKILL."""


Message = Hello | Start | Refused | Started | Output | Exited | Signal | End | Kill

_TYPES: dict[str, type[Message]] = {
    kind.__name__: kind
    for kind in (Hello, Start, Refused, Started, Output, Exited, Signal, End, Kill)
}


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
