"""The flight record of a rank: what its process knew when something went wrong.

A record is one JSON file. Times named `wall` are seconds since 1970; all other times are seconds of
the monotonic clock of the rank's host. `Clock` has both at one moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field

VERSION = 1
FORMAT = "slipstream flight record"


@dataclass(frozen=True, kw_only=True, slots=True)
class ClockReading:
    """Both clocks of a host at the same moment.

    Args:
        wall: Seconds since 1970.
        monotonic: Seconds of the monotonic clock.
    """

    wall: float
    monotonic: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StackLine:
    """A function call on a stack.

    Args:
        file: Path of the source file.
        line: Number of the line that is executed.
        function: Name of the function.
        code: Text of the line, "" if the file cannot be read.
        is_library: Whether the file belongs to Python, to an installed package or to Slipstream.
    """

    file: str
    line: int
    function: str
    code: str = ""
    is_library: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ThreadStack:
    """The stack of a Python thread, the outermost call first.

    Args:
        name: Name of the thread; the main thread is "MainThread".
        lines: Calls of the stack; at most the innermost forty.
    """

    name: str
    lines: tuple[StackLine, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RaisedError:
    """An exception that nobody caught.

    Args:
        type: Name of the exception's class, with its module unless that is `builtins`.
        message: Text of the exception.
        is_communication: Whether the class is one of Slipstream's errors about other ranks, or
            PyTorch's `DistBackendError`; then the fault lies elsewhere.
        lines: Calls of the traceback, the outermost first.
        causes: Types and messages of the exceptions that led to it, the newest first.
    """

    type: str
    message: str
    is_communication: bool
    lines: tuple[StackLine, ...] = ()
    causes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Occasion:
    """A reason for which a record was written.

    Args:
        kind: "failure" (a group failed), "stall" (an operation of this rank waits for long),
            "awaited" (others wait for long for this rank), "abort" (this rank ended a group),
            "exception", "ending" (an exception after SIGTERM had come), "signal" or "request".
        text: Reason in words.
        at: Time of the occasion.
        wall: The same moment on the wall clock.
        error: Exception that nobody caught (default None).
        stacks: Stacks of all threads of the process at that time.
    """

    kind: str
    text: str
    at: float
    wall: float
    error: RaisedError | None = None
    stacks: tuple[ThreadStack, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedOperation:
    """An operation of the engine.

    Args:
        collective: Kind of the operation, such as "allreduce".
        name: Name of the tensor, which may be "".
        group: Name of the group.
        sequence: Number of the operation in its group, from 0.
        dtype: Type of the elements.
        bytes: Size of the buffer.
        state: "waiting", "running", "done" or "failed".
        submitted: Time of the submission.
        started: Time of the start, or None.
        ended: Time of the end, or None.
        wall: Wall clock at the newest of these moments.
        error: Error of a failed operation.
        absent: Ranks that had not submitted the operation.
        missing: Ranks with which data had still to be exchanged.
    """

    collective: str
    name: str
    group: str
    sequence: int
    dtype: str
    bytes: int
    state: str
    submitted: float
    started: float | None
    ended: float | None
    wall: float
    error: str = ""
    absent: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        """The operation in words, such as "allreduce 'grad.3'"."""
        return f"{self.collective} '{self.name}'" if self.name else self.collective

    @property
    def is_in_flight(self) -> bool:
        """Whether the operation has not ended."""
        return self.ended is None


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedEvent:
    """An event of the engine.

    Args:
        kind: "streams lost", "streams opened", "aborted", "failed", "stalled", "awaited" or
            "paused".
        text: Event in words.
        at: Time of the event.
        wall: The same moment on the wall clock.
        rank: The other rank, or None.
        group: Name of the group, or "".
        sequence: Number of the operation in the group.
    """

    kind: str
    text: str
    at: float
    wall: float
    rank: int | None = None
    group: str = ""
    sequence: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedPeer:
    """Another rank, as the rank of the record saw it.

    Args:
        rank: Rank of the peer.
        host: Name of its host.
        connection: Kind and address of the connection; "" if there was none.
        state: "connecting", "connected", "left" or "gone".
        why: Reason why the peer left or is gone.
        ended: Time at which it left or was gone, or None.
        heard: Time at which its last message arrived, or None.
        streams: Number of connections.
        streams_alive: Number of open connections.
        bytes_sent: Bytes sent to the peer.
        bytes_received: Bytes received from the peer.
    """

    rank: int
    host: str
    connection: str
    state: str
    why: str
    ended: float | None
    heard: float | None
    streams: int
    streams_alive: int
    bytes_sent: int
    bytes_received: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedGroup:
    """A group of ranks.

    Args:
        name: Name of the group.
        ranks: Ranks of the world, in the order of the group.
        submitted: Number of collectives that each of them had submitted, as far as is known.
        failure: Error of the group; "" if it has not failed.
    """

    name: str
    ranks: tuple[int, ...]
    submitted: tuple[int, ...]
    failure: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedEngine:
    """An engine of the process.

    Args:
        rank: Rank in the world of the engine.
        world_size: Number of ranks of this world.
        epoch: Number of the world among the worlds of the process.
        is_open: Whether the engine was open when the record was written.
        ended_operations: Number of operations that had ended.
        stats: Counters of the engine.
        operations: Last operations; those that had not ended are at the end.
        events: Last events.
        peers: Other ranks.
        groups: Groups of the engine.
    """

    rank: int
    world_size: int
    epoch: int
    is_open: bool
    ended_operations: int
    stats: dict[str, float] = field(default_factory=dict[str, float])
    operations: tuple[RecordedOperation, ...] = ()
    events: tuple[RecordedEvent, ...] = ()
    peers: tuple[RecordedPeer, ...] = ()
    groups: tuple[RecordedGroup, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryReading:
    """The memory of a host and of a process, in bytes; None if the kernel does not tell.

    Args:
        total: Memory of the host.
        available: Memory of the host that programs could still get.
        limit: Limit of the process's control group.
        resident: Memory of the process.
        peak: Most memory that the process had.
    """

    total: int | None = None
    available: int | None = None
    limit: int | None = None
    resident: int | None = None
    peak: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedEpoch:
    """The epoch of an elastic job that a record speaks of.

    Args:
        number: Number of the epoch.
        title: Name of the epoch.
        slots: Slot of each rank in the launcher's list, -1 for none.
        followed_by: Number of the epoch that this process entered next; 0 if it has not.
    """

    number: int
    title: str
    slots: tuple[int, ...] = ()
    followed_by: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class FlightRecord:
    """The flight record of one rank.

    Args:
        rank: Rank of the process in the job.
        world_size: Number of ranks of the job.
        host: Name of the host.
        pid: Number of the process.
        command: Program and arguments; values that look like secrets are replaced.
        started: Wall clock at the start of the process.
        clock: Both clocks when the record was written.
        occasions: Reasons for which the record was written, the oldest first.
        engines: Engines of the process.
        versions: Versions of Slipstream, Python and loaded frameworks.
        load: Load averages of the host over 1, 5 and 15 minutes.
        memory: Memory of the host and of the process.
        environment: Environment variables that hold no secret.
        epoch: Epoch whose ranks and whose time the record speaks of (default None: the job is not
            elastic, or its training had not begun).
        version: Version of the format.
        format: Name of the format.
    """

    rank: int
    world_size: int
    host: str
    pid: int
    command: tuple[str, ...]
    started: float
    clock: ClockReading
    occasions: tuple[Occasion, ...] = ()
    engines: tuple[RecordedEngine, ...] = ()
    versions: dict[str, str] = field(default_factory=dict[str, str])
    load: tuple[float, ...] = ()
    memory: MemoryReading = field(default_factory=MemoryReading)
    environment: dict[str, str] = field(default_factory=dict[str, str])
    epoch: RecordedEpoch | None = None
    version: int = VERSION
    format: str = FORMAT
