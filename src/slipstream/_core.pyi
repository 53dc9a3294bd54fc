from collections.abc import Sequence
import enum


class DType(enum.Enum):
    """Element type."""

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
    """Operation that combines the elements of several ranks."""

    SUM = 0

    AVERAGE = 1

    MIN = 2

    MAX = 3

    PRODUCT = 4

    BAND = 5

    BOR = 6

    BXOR = 7

class Algorithm(enum.Enum):
    """Algorithm of a collective."""

    AUTO = 0

    RING = 1

    DIMENSIONS = 2

    RECURSIVE_DOUBLING = 3

    BINOMIAL = 4

    DIRECT = 5

    ENCODED = 6

class CodecTraits:
    """Layout of a codec on the wire; the ratio is fixed."""

    @property
    def name(self) -> str: ...

    @property
    def block(self) -> int:
        """Number of elements that are encoded together."""

    @property
    def header_bytes(self) -> int:
        """Size of each block's scale in bytes."""

    @property
    def element_bytes(self) -> int:
        """Size of each encoded element in bytes."""

def codecs() -> list[CodecTraits]:
    """Return the codecs of float32 on the wire, the exact one first."""

def simd_target() -> str:
    """Return the SIMD target chosen for this CPU, such as 'AVX3'."""

def algorithm_table() -> str:
    """
    Return the table of rules that choose algorithms: one rule per line, with columns separated by tabs.
    """

def itemsize(dtype: DType) -> int:
    """Size of one element in bytes."""

class OperationRecord:
    """
    An operation; times are in nanoseconds of the steady clock, 0 for moments that have not come.
    """

    @property
    def collective(self) -> str: ...

    @property
    def dtype(self) -> str: ...

    @property
    def state(self) -> str: ...

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
    def error(self) -> str: ...

    @property
    def absent(self) -> list[int]: ...

    @property
    def missing(self) -> list[int]: ...

class FlightEvent:
    """An event that may explain a failure."""

    @property
    def kind(self) -> str: ...

    @property
    def at(self) -> int: ...

    @property
    def rank(self) -> int:
        """Return the other rank, or -1."""

    @property
    def group(self) -> str: ...

    @property
    def sequence(self) -> int: ...

    @property
    def text(self) -> str: ...

class FlightPeer:
    """Another rank, as this rank sees it."""

    @property
    def rank(self) -> int: ...

    @property
    def host(self) -> str: ...

    @property
    def connection(self) -> str: ...

    @property
    def state(self) -> str: ...

    @property
    def why(self) -> str: ...

    @property
    def ended(self) -> int: ...

    @property
    def heard(self) -> int: ...

    @property
    def streams(self) -> int: ...

    @property
    def streams_alive(self) -> int: ...

    @property
    def bytes_sent(self) -> int: ...

    @property
    def bytes_received(self) -> int: ...

class FlightGroup:
    """A group and how far its members are."""

    @property
    def name(self) -> str: ...

    @property
    def ranks(self) -> list[int]: ...

    @property
    def started(self) -> int: ...

    @property
    def submitted(self) -> list[int]: ...

    @property
    def failure(self) -> str: ...

class FlightSnapshot:
    """State of an engine, with its last operations and events."""

    @property
    def rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def at(self) -> int: ...

    @property
    def ended_operations(self) -> int: ...

    @property
    def operations(self) -> list[OperationRecord]: ...

    @property
    def events(self) -> list[FlightEvent]: ...

    @property
    def peers(self) -> list[FlightPeer]: ...

    @property
    def groups(self) -> list[FlightGroup]: ...

def delay_end_by_signal(number: int, grace: float) -> int:
    """
    Delay the end of this process by a signal for at most `grace` seconds. Return a descriptor that becomes readable when the signal arrives, or -1 if the signal has another disposition than the default one.
    """

def end_by_signal(number: int) -> None:
    """End this process by a signal, as if nothing had been caught."""

def array_view(array: object) -> tuple[int, int, DType, tuple[int, ...], bool, object]:
    """
    Return (address, count, DType, shape, writable, owner) of a contiguous array in CPU memory; the memory lives as long as the owner.
    """

class ListenAddress:
    """Address of a rank, with the reason why it is used, or is not."""

    @property
    def address(self) -> str: ...

    @property
    def interface(self) -> str: ...

    @property
    def reason(self) -> str: ...

    @property
    def usable(self) -> bool: ...

def choose_listen_addresses(filter: str, towards: str) -> list[ListenAddress]:
    """
    Return the addresses on which this rank should listen, the best first. `filter` is empty or has NCCL's syntax; `towards` is empty or a host of the job.
    """

def explain_listen_addresses(filter: str, towards: str) -> list[ListenAddress]:
    """
    Return the addresses of choose_listen_addresses(), followed by all others of this host, with the reason why they are not used.
    """

class Arrivals:
    """Connections of a listening socket, sorted."""

    @property
    def greeted(self) -> list[int]:
        """Descriptors that begin with the greeting."""

    @property
    def silent(self) -> list[int]:
        """Descriptors that have not sent the whole greeting."""

    @property
    def refused(self) -> list[str]:
        """Addresses of those that were closed."""

    @property
    def accepted(self) -> int:
        """Number of connections that were accepted."""

    @property
    def error(self) -> int:
        """errno if no more can be accepted now, or 0."""

def sort_arrivals(listener: int, silent: Sequence[int], most: int, greeting: bytes) -> Arrivals:
    """
    Accept connections; sort them, and those that were silent, by their first bytes.
    """

class Handle:
    """An operation in flight."""

    def done(self) -> bool:
        """Tell whether the operation has ended, without blocking."""

    def wait(self, timeout: float = 0.0) -> None:
        """
        Wait without the GIL until the operation has ended; raise its error, or PeerTimeoutError after `timeout` seconds (0: only the operation's own limit).
        """

    def source(self) -> int:
        """Return the sender of a received message, as rank in the group."""

class Group:
    """Set of ranks with its own sequence of operations."""

    def rank(self) -> int: ...

    def size(self) -> int: ...

    def name(self) -> str: ...

    def dimensions(self) -> list[int]:
        """
        Return the sizes of the dimensions of the group's ranks, the innermost first.
        """

    def ranks_of_host(self) -> list[int]:
        """
        Return the group's ranks on this host; [] if hosts have different numbers of ranks.
        """

    def counterparts(self) -> list[int]:
        """
        Return, of every host, the rank with this rank's position on its host; [] if hosts have different numbers of ranks.
        """

    def abort(self, reason: str) -> None:
        """
        End all operations of the group on all members; any thread may call it.
        """

    def check(self) -> None:
        """
        Raise the error of a group that has failed. A group without operations fails as well, if a member is lost or aborts the group.
        """

    def tune(self, *, direct_bytes: int, doubling_bytes: int, segment_bytes: int = 0) -> None:
        """
        Set the largest sizes in bytes at which later allreduces use direct exchange and recursive doubling, and the segment size (0: the engine's). All members must call it between the same two operations.
        """

    def close(self) -> None:
        """
        Leave the group; operations in flight end with AbortedError on all members.
        """

    def allreduce(self, input: int, output: int, count: int, dtype: DType, op: ReduceOp, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False, codec: str = 'none', residual: int = 0) -> Handle:
        """
        Combine the buffers of all ranks. The codec applies only between hosts, to float32 sums and averages; `residual` is the address of `count` floats, or 0.
        """

    def reduce_scatter(self, input: int, output: int, count_per_rank: int, dtype: DType, op: ReduceOp, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def reduce(self, input: int, output: int, count: int, dtype: DType, op: ReduceOp, root: int, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def all_gather(self, input: int, output: int, count_per_rank: int, dtype: DType, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def all_gather_v(self, input: int, output: int, counts: Sequence[int], dtype: DType, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def gather(self, input: int, output: int, count_per_rank: int, dtype: DType, root: int, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def scatter(self, input: int, output: int, count_per_rank: int, dtype: DType, root: int, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def broadcast(self, data: int, count: int, dtype: DType, root: int, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def all_to_all(self, input: int, output: int, count_per_rank: int, dtype: DType, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def send(self, data: int, count: int, dtype: DType, peer: int, tag: int = 0, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def recv(self, data: int, count: int, dtype: DType, peer: int, tag: int = 0, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def all_to_all_v(self, input: int, output: int, send_counts: Sequence[int], receive_counts: Sequence[int], dtype: DType, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

    def barrier(self, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> Handle: ...

class DeviceHandle:
    """A collective on the memory of a GPU."""

    def wait_on(self, stream: int) -> None:
        """
        Make a stream of the driver wait until the results are in the GPU's memory; return at once.
        """

    def done(self) -> bool:
        """
        Tell whether the GPU uses the memory no more: it has the results, or has failed.
        """

    def wait(self, timeout: float = 0.0) -> None:
        """
        Wait without the GIL until the engine has ended its part; raise its error, or PeerTimeoutError after `timeout` seconds (0: no limit).
        """

    def check(self) -> None:
        """Raise the error of an operation that has failed."""

class DeviceGroup:
    """Collectives of a group on the memory of one GPU."""

    def __init__(self, group: Group, ordinal: int, *, num_slots: int = 8, slot_bytes: int = 4194304, library: str = 'libcuda.so.1') -> None: ...

    def rank(self) -> int: ...

    def size(self) -> int: ...

    def on(self, stream: int) -> DeviceGroup:
        """
        Return the group, with collectives that begin after all commands that a stream of the driver has when they are called.
        """

    def close(self) -> None:
        """
        Leave the group, and block until the GPU uses no memory of its operations.
        """

    def allreduce(self, input: int, output: int, count: int, dtype: DType, op: ReduceOp, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False, codec: str = 'none', residual: int = 0) -> DeviceHandle:
        """
        Combine the buffers of all ranks. The codec applies only between hosts, to float32 sums and averages; `residual` is the address of `count` floats, or 0.
        """

    def reduce_scatter(self, input: int, output: int, count_per_rank: int, dtype: DType, op: ReduceOp, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> DeviceHandle: ...

    def reduce(self, input: int, output: int, count: int, dtype: DType, op: ReduceOp, root: int, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> DeviceHandle: ...

    def all_gather(self, input: int, output: int, count_per_rank: int, dtype: DType, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> DeviceHandle: ...

    def all_gather_v(self, input: int, output: int, counts: Sequence[int], dtype: DType, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> DeviceHandle: ...

    def gather(self, input: int, output: int, count_per_rank: int, dtype: DType, root: int, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> DeviceHandle: ...

    def scatter(self, input: int, output: int, count_per_rank: int, dtype: DType, root: int, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> DeviceHandle: ...

    def broadcast(self, data: int, count: int, dtype: DType, root: int, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> DeviceHandle: ...

    def all_to_all(self, input: int, output: int, count_per_rank: int, dtype: DType, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> DeviceHandle: ...

    def send(self, data: int, count: int, dtype: DType, peer: int, tag: int = 0, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> DeviceHandle: ...

    def recv(self, data: int, count: int, dtype: DType, peer: int, tag: int = 0, *, name: str = '', priority: int = 0, timeout: float = 0.0, algorithm: Algorithm = Algorithm.AUTO, waits_soon: bool = False) -> DeviceHandle: ...

class Gpu:
    """GPU, as the CUDA driver describes it."""

    @property
    def name(self) -> str: ...

    @property
    def memory_bytes(self) -> int: ...

class GpuList:
    """CUDA driver of this host, and its GPUs."""

    @property
    def cuda_version(self) -> int: ...

    @property
    def gpus(self) -> list[Gpu]: ...

def list_gpus(library: str = 'libcuda.so.1') -> GpuList:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves, without using them."""

def try_gpu(ordinal: int, library: str = 'libcuda.so.1') -> None:
    """
    Use a GPU as collectives do, with a few bytes; raise an error if it cannot serve them.
    """

def items_of(type: object, otherwise: object, value: object) -> object:
    """
    Return the items of a list or tuple if all are instances of the type, without running Python code; otherwise return otherwise(value).
    """

class Tensor:
    """Properties of a tensor that must be equal on all ranks."""

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
    """Tensor that is ready on all ranks."""

    @property
    def tensor(self) -> Tensor: ...

    @property
    def token(self) -> int: ...

    @property
    def submitted(self) -> bool:
        """False if this rank has joined and takes part without data of its own."""

    @property
    def fused(self) -> int:
        """Equal for tensors that were submitted together; 0 for a single one."""

class FailedTensor:
    """Tensor of this rank that has failed."""

    @property
    def tensor(self) -> Tensor: ...

    @property
    def token(self) -> int: ...

    def check(self) -> None:
        """Raise the error with which the tensor failed."""

class Outcome:
    """Result of a round."""

    @property
    def round(self) -> int: ...

    @property
    def ready(self) -> list[AgreedTensor]:
        """Ready tensors, in the same order on all ranks."""

    @property
    def tokens(self) -> list[int]:
        """Tokens of the tensors in `ready` that this rank has submitted."""

    @property
    def failed(self) -> list[FailedTensor]: ...

    @property
    def some_joined(self) -> bool:
        """True if some rank had joined and takes part in `ready` without data."""

    @property
    def last_joined(self) -> int | None:
        """Rank that joined last, once all ranks have joined."""

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
        Submit one tensor after another, with ascending tokens, for the same round.
        """

    def submit_fused(self, tensors: Sequence[Tensor], tokens: Sequence[int]) -> None:
        """Submit tensors that become ready together or not at all."""

    def join(self) -> None:
        """State that this rank has no more data than it has submitted."""

    def next(self, timeout: float) -> Outcome | None:
        """
        Wait without the GIL for the next outcome; return None after `timeout` seconds.
        """

    def stats(self) -> NegotiationStats: ...

    def close(self) -> None:
        """Fail all waiting tensors, here and on the other members. Idempotent."""

def make_negotiator(group: Group, *, cycle: float = 0.0, hold: float = 0.5, stall_after: float = 60.0, most_tensors: int = 65536) -> Negotiator:
    """
    Create this rank's part in the negotiations of the group; all members must create it.
    """

class Config:
    """Options of a runtime; times are in seconds."""

    def __init__(self, *, bind: Sequence[str] = ['127.0.0.1'], host_name: str = '', host_id: str = '', rack: str = '', dimensions: Sequence[int] = [], streams: int = 0, first_streams: int = 0, tls: bool = False, congestion: str = '', dscp: int = 0, pacing_bytes: int = 0, segment_bytes: int = 131072, eager_bytes: int = 8192, connect_timeout: float = 120.0, peer_timeout: float = 5.0, stall_after: float = 60.0, timeout: float = 1800.0, algorithm: str = 'auto') -> None: ...

class Stats:
    """Counters since the runtime was created; bytes include headers."""

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
    def streams_reopened(self) -> int: ...

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

class Runtime:
    """Engine of one rank with its transports."""

    def __init__(self, *, rank: int, world_size: int, epoch: int = 0, key: bytes, config: Config = ...) -> None: ...

    def address(self) -> bytes:
        """Return the address at which peers reach this rank."""

    def connect(self, addresses: Sequence[bytes], timeout: float) -> None:
        """
        Connect to all ranks, with one address for each rank; block without the GIL.
        """

    def local_ranks(self) -> list[int]:
        """Return the ranks of this host, in order."""

    def lost_ranks(self) -> list[tuple[int, str]]:
        """Return (rank, reason) for every rank that is lost or has left."""

    def group(self, name: str, ranks: Sequence[int]) -> Group:
        """
        Create a group of world ranks that includes this one, without communication. All members must create it.
        """

    def notify(self, handle: Handle, token: int) -> None:
        """Make next_event() return the token once the operation is done."""

    def next_event(self, timeout: float) -> tuple[str, int] | None:
        """Return the next ('done', token), or None after `timeout` seconds."""

    def next_log(self, timeout: float) -> tuple[int, str] | None:
        """
        Return the next (logging level, text), or None after `timeout` seconds.
        """

    def stats(self) -> Stats:
        """Return the counters."""

    def flight(self) -> FlightSnapshot:
        """Return the state of the engine, with its last operations and events."""

    def alarms(self) -> int:
        """
        Return the number of events for which a flight record should be written; such an event also ends next_log().
        """

    def keep_records(self, keep: bool) -> None:
        """Set whether completed operations are recorded for take_records()."""

    def take_records(self) -> list[OperationRecord]:
        """Return the records since the last call."""

    def close(self) -> None:
        """Tell the peers and end all operations in flight. Idempotent."""
