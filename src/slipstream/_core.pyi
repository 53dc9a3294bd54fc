from collections.abc import Sequence
import enum


class DType(enum.Enum):
    """Type of an element."""

    INT8 = 0

    UINT8 = 1

    INT16 = 2

    UINT16 = 3

    INT32 = 4

    UINT32 = 5

    INT64 = 6

    UINT64 = 7

    FLOAT16 = 8

    BFLOAT16 = 9

    FLOAT32 = 10

    FLOAT64 = 11

    COMPLEX64 = 12

    COMPLEX128 = 13

    BOOL = 14

class ReduceOp(enum.Enum):
    """How elements of several ranks become one."""

    SUM = 0

    AVERAGE = 1

    MIN = 2

    MAX = 3

    PRODUCT = 4

    BAND = 5

    BOR = 6

    BXOR = 7

class Algorithm(enum.Enum):
    """How a collective is computed."""

    AUTO = 0

    RING = 1

    DIMENSIONS = 2

    RECURSIVE_DOUBLING = 3

    BINOMIAL = 4

    DIRECT = 5

    ENCODED = 6

class CodecTraits:
    """The layout of a codec on the wire."""

    @property
    def name(self) -> str: ...

    @property
    def block(self) -> int:
        """Elements that are encoded together."""

    @property
    def header_bytes(self) -> int:
        """Bytes of each block's scale."""

    @property
    def element_bytes(self) -> int:
        """Bytes of each element."""

def codecs() -> list[CodecTraits]:
    """The codecs of float32 on the wire, the exact one first."""

def simd_target() -> str:
    """The SIMD target chosen for this CPU, such as 'AVX3'."""

def algorithm_table() -> str:
    """
    The table by which algorithms are chosen: a line a rule, columns separated by tabs.
    """

def itemsize(dtype: DType) -> int:
    """Bytes of one element."""

def array_view(array: object) -> tuple[int, int, DType, tuple[int, ...], bool, object]:
    """
    (address, count, DType, shape, writable, owner) of a contiguous array in CPU memory; the memory lives as long as the owner.
    """

class ListenAddress:
    """Where a rank should listen, and why."""

    @property
    def address(self) -> str: ...

    @property
    def interface(self) -> str: ...

    @property
    def reason(self) -> str: ...

def choose_listen_addresses(filter: str, towards: str) -> list[ListenAddress]:
    """
    Where this rank should listen, the best first: filter in NCCL's syntax or empty, towards a host of the job or empty.
    """

class Handle:
    """An operation in flight."""

    def done(self) -> bool:
        """Whether it has ended; does not block."""

    def wait(self, timeout: float = 0.0) -> None:
        """
        Blocks without the GIL until done; raises the operation's error, or PeerTimeoutError after `timeout` seconds (0: no limit but the operation's own).
        """

    def source(self) -> int:
        """After a receive: the rank in the group that sent."""

class Group:
    """A set of ranks with a sequence of operations of its own."""

    def rank(self) -> int: ...

    def size(self) -> int: ...

    def name(self) -> str: ...

    def dimensions(self) -> list[int]:
        """
        The sizes of the dimensions in which its ranks are laid out, the innermost first.
        """

    def abort(self, reason: str) -> None:
        """Ends every operation of the group on every member. Any thread."""

    def tune(self, *, direct_bytes: int, doubling_bytes: int, segment_bytes: int = 0) -> None:
        """
        For allreduces from now on, up to how many bytes they are direct or by recursive doubling, and the bytes of a segment (0: the engine's). All members call it between the same two operations.
        """

    def close(self) -> None:
        """
        Leaves the group; operations in flight end with AbortedError on every member.
        """

    def allreduce(self, input: int, output: int, count: int, dtype: DType, op: ReduceOp, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False, codec: str = 'none', residual: int = 0) -> Handle:
        """
        The codec applies between hosts only, to sums and averages of float32; `residual` is the address of `count` floats, or 0.
        """

    def reduce_scatter(self, input: int, output: int, count_per_rank: int, dtype: DType, op: ReduceOp, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def reduce(self, input: int, output: int, count: int, dtype: DType, op: ReduceOp, root: int, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def all_gather(self, input: int, output: int, count_per_rank: int, dtype: DType, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def all_gather_v(self, input: int, output: int, counts: Sequence[int], dtype: DType, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def gather(self, input: int, output: int, count_per_rank: int, dtype: DType, root: int, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def scatter(self, input: int, output: int, count_per_rank: int, dtype: DType, root: int, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def broadcast(self, data: int, count: int, dtype: DType, root: int, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def all_to_all(self, input: int, output: int, count_per_rank: int, dtype: DType, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def all_to_all_v(self, input: int, output: int, send_counts: Sequence[int], receive_counts: Sequence[int], dtype: DType, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def barrier(self, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def send(self, data: int, count: int, dtype: DType, peer: int, tag: int = 0, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def recv(self, data: int, count: int, dtype: DType, peer: int, tag: int = 0, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

def items_of(type: object, otherwise: object, value: object) -> object:
    """
    Return the items of a list or tuple if all are instances of the type, without running Python code; else what `otherwise` makes of the value.
    """

class Tensor:
    """What all ranks must pass alike for a tensor."""

    def __init__(self, name: str, dtype: DType, shape: Sequence[int], *, collective: str = 'allreduce', op: ReduceOp = ReduceOp.SUM, root: int = 0, codec: str = 'none', note: str = '') -> None: ...

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> DType: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def collective(self) -> str: ...

    @property
    def op(self) -> ReduceOp: ...

    @property
    def root(self) -> int: ...

    @property
    def codec(self) -> str: ...

    @property
    def note(self) -> str: ...

class AgreedTensor:
    """A tensor that is ready on all ranks."""

    @property
    def tensor(self) -> Tensor: ...

    @property
    def token(self) -> int: ...

    @property
    def submitted(self) -> bool:
        """
        False where this rank has joined: it takes part without data of its own.
        """

    @property
    def fused(self) -> int:
        """Equal for those that were submitted together; 0 for one alone."""

class FailedTensor:
    """A tensor of this rank that will not be ready."""

    @property
    def tensor(self) -> Tensor: ...

    @property
    def token(self) -> int: ...

    def check(self) -> None:
        """Raises what it failed with."""

class Outcome:
    """What the ranks agreed on in a round."""

    @property
    def round(self) -> int: ...

    @property
    def ready(self) -> list[AgreedTensor]:
        """In the same order on all ranks."""

    @property
    def tokens(self) -> list[int]:
        """Of those in `ready` that this rank has submitted."""

    @property
    def failed(self) -> list[FailedTensor]: ...

    @property
    def some_joined(self) -> bool:
        """What is ready is so without data of some rank, which has joined."""

    @property
    def last_joined(self) -> int | None:
        """Where all have joined: the rank that was the last to do so."""

class NegotiationStats:
    """Counters of a negotiator."""

    @property
    def rounds(self) -> int: ...

    @property
    def void_rounds(self) -> int: ...

    @property
    def introductions(self) -> int: ...

    @property
    def tensors(self) -> int: ...

    @property
    def known_tensors(self) -> int: ...

    @property
    def stalls_reported(self) -> int: ...

    @property
    def messages(self) -> int: ...

    @property
    def payload_bytes(self) -> int: ...

class Negotiator:
    """One rank's part in the negotiations of a group."""

    def submit(self, tensor: Tensor, token: int = 0) -> None: ...

    def submit_all(self, tensors: Sequence[Tensor], first_token: int = 0) -> None:
        """
        As submit() of one after another, with tokens that count up, but in one round.
        """

    def submit_fused(self, tensors: Sequence[Tensor], tokens: Sequence[int]) -> None:
        """They become ready together, or not at all."""

    def join(self) -> None:
        """This rank has no more data once what it has submitted is ready."""

    def next(self, timeout: float) -> Outcome | None:
        """
        Blocks without the GIL for the next outcome; None after `timeout` seconds.
        """

    def stats(self) -> NegotiationStats: ...

    def close(self) -> None:
        """Ends what waits, here and at the members. Idempotent."""

def make_negotiator(group: Group, *, cycle: float = 0.0, hold: float = 0.5, stall_after: float = 60.0, most_tensors: int = 65536) -> Negotiator:
    """
    This rank's part in negotiations of the group, which all members make alike.
    """

class Config:
    """How a runtime works; times in seconds."""

    def __init__(self, *, bind: Sequence[str] = ['127.0.0.1'], host_name: str = '', host_id: str = '', rack: str = '', dimensions: Sequence[int] = [], streams: int = 0, first_streams: int = 0, congestion: str = '', dscp: int = 0, pacing_bytes: int = 0, segment_bytes: int = 131072, eager_bytes: int = 8192, connect_timeout: float = 120.0, peer_timeout: float = 5.0, stall_after: float = 60.0, timeout: float = 1800.0, algorithm: str = 'auto') -> None: ...

class Stats:
    """Counters since the runtime was made; bytes include headers."""

    @property
    def operations(self) -> int: ...

    @property
    def failed_operations(self) -> int: ...

    @property
    def network_bytes_sent(self) -> int: ...

    @property
    def network_bytes_received(self) -> int: ...

    @property
    def shm_bytes_sent(self) -> int: ...

    @property
    def shm_bytes_received(self) -> int: ...

    @property
    def segments_sent_again(self) -> int: ...

    @property
    def streams_lost(self) -> int: ...

    @property
    def streams(self) -> int: ...

    @property
    def stalls_reported(self) -> int: ...

    @property
    def busy_nanoseconds(self) -> int: ...

    @property
    def blocked_nanoseconds(self) -> int: ...

    @property
    def last_submit_nanoseconds(self) -> int: ...

    @property
    def last_complete_nanoseconds(self) -> int: ...

class OperationRecord:
    """A completed operation; times in ns."""

    @property
    def collective(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def group(self) -> str: ...

    @property
    def sequence(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def submitted(self) -> int: ...

    @property
    def started(self) -> int: ...

    @property
    def completed(self) -> int: ...

    @property
    def failed(self) -> bool: ...

class Runtime:
    """The engine of one rank with its transports."""

    def __init__(self, *, rank: int, world_size: int, epoch: int = 0, key: bytes, config: Config = ...) -> None: ...

    def address(self) -> bytes:
        """What the peers need to reach this rank."""

    def connect(self, addresses: Sequence[bytes], timeout: float) -> None:
        """
        Connects to all ranks, whose addresses are given by rank. Blocks without the GIL.
        """

    def local_ranks(self) -> list[int]:
        """Ranks of this host, in order."""

    def group(self, name: str, ranks: Sequence[int]) -> Group:
        """
        A group of world ranks that includes this one; no communication. All members make it alike.
        """

    def notify(self, handle: Handle, token: int) -> None:
        """Has next_event() return the token once the operation is done."""

    def next_event(self, timeout: float) -> tuple[str, int] | None:
        """The next ('done', token), or None after `timeout` seconds."""

    def next_log(self, timeout: float) -> tuple[int, str] | None:
        """The next (level of logging, text), or None after `timeout` seconds."""

    def stats(self) -> Stats:
        """Counters so far."""

    def keep_records(self, keep: bool) -> None:
        """Whether completed operations are recorded for take_records()."""

    def take_records(self) -> list[OperationRecord]:
        """The records since the last call."""

    def close(self) -> None:
        """Says goodbye and ends everything in flight. Idempotent."""
