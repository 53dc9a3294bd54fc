"""A set of ranks and the collectives among them.

In the docstrings, n is the number of ranks and S the size of an array in bytes. The stated numbers
of bytes are those that one rank sends for large arrays. `slipstream doctor --algorithms` prints
when each algorithm is chosen, and core/collective/algorithms.h states the cost of each algorithm.

Every collective blocks, or returns a `Handle` at once with `async_op=True`. All ranks of the group
must call the same collectives in the same order, with the same sizes and types. All collectives
accept these keyword arguments: `name` (name of the tensor, for messages and the timeline),
`priority` (operations with a higher priority go first) and `timeout` (in seconds; 0 means the value
of SLIPSTREAM_TIMEOUT).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from slipstream import _core
from slipstream.comm import flight
from slipstream.comm.arrays import Array, View, empty, output_view, view, writable
from slipstream.comm.handle import Handle, keep_until_done, release_done
from slipstream.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Unpack

ANY_RANK = -1


class Options(TypedDict, total=False):
    """Keyword arguments that every collective accepts."""

    async_op: bool
    name: str
    priority: int
    timeout: float


_OPTIONS = Options.__annotations__.keys()
_OPS = {op.name.lower(): op for op in _core.ReduceOp}


def _op(name: str) -> _core.ReduceOp:
    try:
        return _OPS[name]
    except KeyError:
        raise UsageError(f"op is {name!r}; allowed: {', '.join(_OPS)}") from None


class Group:
    """Ranks of the job, renumbered from 0 in the order given; any thread may use a group.

    Args:
        group: Object of the C++ engine for this group of ranks.
    """

    def __init__(self, group: _core.Group) -> None:
        self._group = group
        self.rank = group.rank()
        self.size = group.size()

    @property
    def name(self) -> str:
        """Name of the group, for messages."""
        return self._group.name()

    def allreduce(
        self,
        array: Array,
        op: str = "sum",
        *,
        out: Array | None = None,
        codec: str = "none",
        residual: Array | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """Reduce arrays of equal shape over all ranks, with a bit-identical result on every rank.

        Each rank takes up to 2(n-1) steps and sends up to 2 S (n-1)/n bytes.

        Args:
            array: Array of any shape and element type.
            op: Reduction: sum, average, min, max, product, band, bor or bxor.
            out: Array of equal shape for the result (default: `array` itself).
            codec: Encoding of float32 sums and averages between hosts: none, fp16, bf16 or int8;
                all ranks must pass the same codec. Within a host, nothing is encoded. The codec has
                no effect on arrays below 32 KB and on types other than float32. It also has no
                effect if hosts have different numbers of ranks.
            residual: Float32 array for error feedback, with as many elements as `array` (default
                None). Fill it with zeros before the first call. The engine stores the rounding
                error of the codec in `residual`, for the next allreduce of `array`.

        Returns:
            The array with the result, or a Handle.
        """
        source = view(array)
        target = _target(source, out, "allreduce")
        feedback = _residual(source, residual)
        submitted = self._group.allreduce(
            source.address,
            target.address,
            source.elements,
            source.dtype,
            _op(op),
            codec=codec,
            residual=feedback.address if feedback else 0,
            **_engine(options),
        )
        result = array if out is None else out
        return _finish(submitted, result, (source, target, feedback, result), options)

    def reduce_scatter(
        self, array: Array, op: str = "sum", *, out: Array | None = None, **options: Unpack[Options]
    ) -> Any:
        """Reduce arrays over all ranks, and give rank r the r-th of n equal parts of the result.

        Each rank takes n-1 steps and sends S (n-1)/n bytes.

        Args:
            array: Array whose first dimension is a multiple of n.
            op: Reduction, as in allreduce.
            out: Array for the part of this rank (default: a new NumPy array).
        """
        source = view(array)
        if not source.shape or source.shape[0] % self.size:
            raise UsageError(
                f"reduce_scatter: the array has the shape {source.shape}; allowed: a first"
                f" dimension that is a multiple of the {self.size} ranks"
            )
        shape = (source.shape[0] // self.size, *source.shape[1:])
        result = empty(shape, source.dtype, "reduce_scatter") if out is None else out
        count = source.elements // self.size
        target = output_view(result, count, source.dtype, "reduce_scatter")
        submitted = self._group.reduce_scatter(
            source.address, target.address, count, source.dtype, _op(op), **_engine(options)
        )
        return _finish(submitted, result, (source, target, result), options)

    def all_gather(
        self, array: Array, *, out: Array | None = None, **options: Unpack[Options]
    ) -> Any:
        """Give every rank the arrays of all ranks, stacked in the order of the ranks.

        Each rank takes n-1 steps and sends S (n-1) bytes.

        Args:
            array: Array of equal shape on all ranks.
            out: Array with n times the elements (default: a new NumPy array of the shape (n,
                *shape)).
        """
        source = view(array)
        result = (
            empty((self.size, *source.shape), source.dtype, "all_gather") if out is None else out
        )
        target = output_view(result, source.elements * self.size, source.dtype, "all_gather")
        submitted = self._group.all_gather(
            source.address, target.address, source.elements, source.dtype, **_engine(options)
        )
        return _finish(submitted, result, (source, target, result), options)

    def all_gather_v(
        self,
        array: Array,
        counts: Sequence[int],
        *,
        out: Array | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """Give every rank the arrays of all ranks, concatenated; their lengths may differ.

        Arrays travel round a ring of ranks. Each rank takes n-1 steps and sends the arrays of all
        ranks except that of its successor in the ring.

        Args:
            array: Array of counts[rank] elements.
            counts: Number of elements from each rank; all ranks must pass the same list.
            out: Array of sum(counts) elements (default: a new one-dimensional NumPy array).
        """
        source = view(array)
        self._check_counts("all_gather_v", counts)
        if source.elements != counts[self.rank]:
            raise UsageError(
                f"all_gather_v: the array has {source.elements} elements; allowed:"
                f" {counts[self.rank]}, the value of counts[{self.rank}]"
            )
        total = sum(counts)
        result = empty((total,), source.dtype, "all_gather_v") if out is None else out
        target = output_view(result, total, source.dtype, "all_gather_v")
        submitted = self._group.all_gather_v(
            source.address, target.address, list(counts), source.dtype, **_engine(options)
        )
        return _finish(submitted, result, (source, target, result), options)

    def broadcast(self, array: Array, root: int = 0, **options: Unpack[Options]) -> Any:
        """Replace the array of every rank by the array of the rank `root`.

        Each rank takes up to n-1 pipelined steps and sends up to S bytes.
        """
        target = _target(view(array), None, "broadcast")
        submitted = self._group.broadcast(
            target.address,
            target.elements,
            target.dtype,
            self._peer("broadcast: root", root),
            **_engine(options),
        )
        return _finish(submitted, array, (target, array), options)

    def reduce(
        self,
        array: Array,
        op: str = "sum",
        root: int = 0,
        *,
        out: Array | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """Reduce over all ranks; only the rank `root` gets the result, and no other array changes.

        Each rank takes up to n steps and sends up to S bytes.

        Args:
            array: Array of equal shape on all ranks.
            op: Reduction, as in allreduce.
            root: Rank in the group that gets the result.
            out: Array for the result, on the root only (default: `array` itself).

        Returns:
            The result on the root and `array` on other ranks, or a Handle.
        """
        source = view(array)
        result, target = array, source
        if self.rank == root:
            result = array if out is None else out
            target = _target(source, out, "reduce")
        submitted = self._group.reduce(
            source.address,
            target.address,
            source.elements,
            source.dtype,
            _op(op),
            self._peer("reduce: root", root),
            **_engine(options),
        )
        return _finish(submitted, result, (source, target, result), options)

    def gather(
        self, array: Array, root: int = 0, *, out: Array | None = None, **options: Unpack[Options]
    ) -> Any:
        """Give the rank `root` the arrays of all ranks, stacked in the order of the ranks.

        Each rank takes one step and sends S bytes.

        Args:
            array: Array of equal shape on all ranks.
            root: Rank in the group that gets the arrays.
            out: Array with n times the elements, on the root only (default: a new NumPy array of
                the shape (n, *shape)).

        Returns:
            The stacked arrays on the root and None on other ranks, or a Handle.
        """
        source = view(array)
        result: Any = None
        target = source
        if self.rank == root:
            shape = (self.size, *source.shape)
            result = empty(shape, source.dtype, "gather") if out is None else out
            target = output_view(result, source.elements * self.size, source.dtype, "gather")
        submitted = self._group.gather(
            source.address,
            target.address,
            source.elements,
            source.dtype,
            self._peer("gather: root", root),
            **_engine(options),
        )
        return _finish(submitted, result, (source, target, result), options)

    def scatter(
        self, array: Array | None, out: Array, root: int = 0, **options: Unpack[Options]
    ) -> Any:
        """Give each rank its part of the array of the rank `root`.

        The collective takes one step, in which the root sends S (n-1)/n bytes.

        Args:
            array: Array with n times the elements of `out`, on the root only; other ranks' arrays
                are ignored.
            out: Array for this rank's part.
            root: Rank in the group that sends the parts.
        """
        target = _target(view(out), None, "scatter")
        source = target
        if self.rank == root:
            if array is None:
                raise UsageError(
                    f"scatter: the root passed None; allowed: an array of {self.size} equal parts"
                )
            source = view(array)
            if source.elements != target.elements * self.size or source.dtype != target.dtype:
                raise UsageError(
                    f"scatter: the array has {source.elements} elements; allowed:"
                    f" {target.elements * self.size} of the type of out, {self.size} times as many"
                )
        submitted = self._group.scatter(
            source.address,
            target.address,
            target.elements,
            target.dtype,
            self._peer("scatter: root", root),
            **_engine(options),
        )
        return _finish(submitted, out, (source, target, out), options)

    def all_to_all(
        self, array: Array, *, out: Array | None = None, **options: Unpack[Options]
    ) -> Any:
        """Give rank r the r-th of n equal parts of each rank's array, joined in rank order.

        Each rank takes one step and sends S (n-1)/n bytes.

        Args:
            array: Array whose first dimension is a multiple of n.
            out: Array of equal shape (default: a new NumPy array).
        """
        source = view(array)
        if not source.shape or source.shape[0] % self.size:
            raise UsageError(
                f"all_to_all: the array has the shape {source.shape}; allowed: a first dimension"
                f" that is a multiple of the {self.size} ranks"
            )
        result = empty(source.shape, source.dtype, "all_to_all") if out is None else out
        target = output_view(result, source.elements, source.dtype, "all_to_all")
        submitted = self._group.all_to_all(
            source.address,
            target.address,
            source.elements // self.size,
            source.dtype,
            **_engine(options),
        )
        return _finish(submitted, result, (source, target, result), options)

    def all_to_all_v(
        self,
        array: Array,
        send_counts: Sequence[int],
        receive_counts: Sequence[int],
        *,
        out: Array | None = None,
        **options: Unpack[Options],
    ) -> Any:
        """Send consecutive parts of an array to the ranks: send_counts[r] elements to rank r.

        Each rank takes one step, in which it sends all parts except its own.

        Args:
            array: Array of sum(send_counts) elements.
            send_counts: Number of elements that go to each rank.
            receive_counts: Number of elements that come from each rank. Each sender passes the same
                number for this rank in its `send_counts`.
            out: Array of sum(receive_counts) elements (default: a new one-dimensional NumPy array).
        """
        source = view(array)
        self._check_counts("all_to_all_v", send_counts)
        self._check_counts("all_to_all_v", receive_counts)
        if source.elements != sum(send_counts):
            raise UsageError(
                f"all_to_all_v: the array has {source.elements} elements; allowed:"
                f" {sum(send_counts)}, the sum of send_counts"
            )
        total = sum(receive_counts)
        result = empty((total,), source.dtype, "all_to_all_v") if out is None else out
        target = output_view(result, total, source.dtype, "all_to_all_v")
        submitted = self._group.all_to_all_v(
            source.address,
            target.address,
            list(send_counts),
            list(receive_counts),
            source.dtype,
            **_engine(options),
        )
        return _finish(submitted, result, (source, target, result), options)

    def barrier(self, **options: Unpack[Options]) -> Any:
        """Wait until every rank has called barrier(); a rank takes at most 2 + log2 n steps."""
        return _finish(self._group.barrier(**_engine(options)), None, (), options)

    def send(self, array: Array, peer: int, tag: int = 0, **options: Unpack[Options]) -> Any:
        """Send an array to one rank, which must call recv() with the same tag.

        A small array is sent even before the receiver has called recv().

        Args:
            array: Array of any shape.
            peer: Rank of the receiver in the group, not this rank itself.
            tag: Number that the receiver must pass to recv() as well, 0 to 2^31 - 1 (default 0).
        """
        source = view(array)
        submitted = self._group.send(
            source.address,
            source.elements,
            source.dtype,
            self._peer("send: peer", peer),
            tag,
            **_engine(options),
        )
        return _finish(submitted, array, (source, array), options)

    def recv(
        self, out: Array, peer: int = ANY_RANK, tag: int = 0, **options: Unpack[Options]
    ) -> Any:
        """Receive an array of the size and type of `out` from one rank or from any rank.

        Args:
            out: Array that is filled.
            peer: Rank of the sender in the group, or ANY_RANK (the default) for any sender; then
                Handle.source() returns the sender.
            tag: Number that the sender has passed to send() as `tag` (default 0).
        """
        target = _target(view(out), None, "recv")
        peer = ANY_RANK if peer == ANY_RANK else self._peer("recv: peer", peer)
        submitted = self._group.recv(
            target.address, target.elements, target.dtype, peer, tag, **_engine(options)
        )
        return _finish(submitted, out, (target, out), options)

    def abort(self, reason: str) -> None:
        """Let all operations of the group fail with AbortedError on all ranks.

        Any thread may call abort().

        Args:
            reason: Text for the message of the error.
        """
        flight.note_abort(reason)
        self._group.abort(reason)

    def check(self) -> None:
        """Raise the error of a group that has failed; does not block.

        A group fails when a member is lost, aborts it, or passes other arguments.

        Raises:
            PeerError: a member is lost.
            AbortedError: a member has aborted the group.
            MismatchError: the members passed different arguments.
        """
        self._group.check()

    def close(self) -> None:
        """Leave the group; operations in flight fail with AbortedError on every rank."""
        self._group.close()

    def _peer(self, parameter: str, rank: int) -> int:
        if not 0 <= rank < self.size:
            raise UsageError(f"{parameter} is {rank}; allowed: 0 to {self.size - 1}")
        return rank

    def _check_counts(self, collective: str, counts: Sequence[int]) -> None:
        if len(counts) != self.size or any(count < 0 for count in counts):
            raise UsageError(
                f"{collective}: counts are {list(counts)}; allowed: one count for each of the"
                f" {self.size} ranks, 0 or more"
            )


def _target(source: View, out: Array | None, collective: str) -> View:
    """Return the memory for a result: the memory of `out`, or of the input if `out` is None."""
    if out is not None:
        return output_view(out, source.elements, source.dtype, collective)
    return writable(source, collective)


def _residual(source: View, residual: Array | None) -> View | None:
    if residual is None:
        return None
    if source.dtype != _core.DType.FLOAT32:
        raise UsageError(
            "allreduce: residual= needs an array of float32, but the array is"
            f" {source.dtype.name.lower()}; convert it, or leave out residual="
        )
    return output_view(residual, source.elements, source.dtype, "residual")


class _EngineOptions(TypedDict, total=False):
    name: str
    priority: int
    timeout: float
    waits_soon: bool


def _engine(options: Options) -> _EngineOptions:
    if unknown := options.keys() - _OPTIONS:
        raise UsageError(
            f"unknown keywords: {', '.join(sorted(unknown))}; allowed: {', '.join(_OPTIONS)}, and"
            " the parameters of the collective"
        )
    # A caller that waits at once drives the engine itself, so no other thread has to wake up.
    accepted: _EngineOptions = {"waits_soon": not options.get("async_op", False)}
    if "name" in options:
        accepted["name"] = options["name"]
    if "priority" in options:
        accepted["priority"] = options["priority"]
    if "timeout" in options:
        accepted["timeout"] = options["timeout"]
    return accepted


def _finish(
    submitted: _core.Handle, result: Any, arrays: tuple[object | View, ...], options: Options
) -> Any:
    release_done()
    if options.get("async_op", False):
        return Handle(submitted, result, arrays)
    try:
        submitted.wait()
    except BaseException:
        keep_until_done(submitted, arrays)  # Ctrl-C ends the wait, not the operation
        raise
    return result
