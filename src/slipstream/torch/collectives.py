"""Submission of each collective to the engine, after a check of this rank's tensors.

Nothing here blocks. A function that takes several tensors checks all tensors before it submits the
first, so that the engine never uses memory of a call that raised an error. If sizes, dtypes or
operations differ between ranks, the engine notices the difference and reports it on all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, TypedDict, cast

import torch
from torch.distributed import ReduceOp

from slipstream import _core
from slipstream.errors import UsageError
from slipstream.torch.tensors import (
    Copies,
    check_same_dtype,
    cut_elements,
    dense,
    extent,
    flat_input,
    flat_output_buffer,
    output_buffer,
    reduce_op,
    reduced_dtype,
    usable,
)

Tensors = Sequence[torch.Tensor]
_EXCHANGE_TAG = 2**32 - 1  # tag of the messages of `exchange_by_messages`


class _Name(TypedDict, total=False):
    name: str


class RunOptions(_Name):
    """Options of an operation of the engine.

    Args:
        timeout: Longest duration of the operation in seconds.
        waits_soon: Whether the caller waits for the operation right after the call. The caller's
            thread then executes the operation itself, which avoids waking another thread.
        name: Name of the tensor, for messages and the timeline (default: no name).
    """

    timeout: float
    waits_soon: bool


class Encoding(NamedTuple):
    """Options of a call that averages or sums a tensor, encoded for the network between hosts.

    Args:
        codec: Codec, the same on all ranks: none (default), fp16, bf16 or int8.
        residual: Float32 tensor with as many elements as the tensor. Each call adds the
            residual to the tensor, and then stores the codec's rounding errors in the residual
            (error feedback). None (default) turns error feedback off.
        priority: Priority of the operation (default 0). The network carries operations with a
            higher priority first.
        averages: Whether the result is the average (default), not the sum.
    """

    codec: str = "none"
    residual: torch.Tensor | None = None
    priority: int = 0
    averages: bool = True

    @property
    def op(self) -> ReduceOp:
        """Reduction of the values."""
        return ReduceOp(ReduceOp.AVG if self.averages else ReduceOp.SUM)


class Submission(NamedTuple):
    """Operations that were submitted to the engine.

    Args:
        handles: The engine's handles, one for each operation.
        inputs: Tensors that the caller passed, for the profiler.
        result: Outputs in the form in which the caller passed them, for the future.
        buffers: Memory that the engine uses, which must live until the handles are done.
        copies: Pairs of tensors to copy from and to when the handles are done.
        landed: Event of a GPU that is recorded when the results are in the caller's tensors. None
            (default) if they are there once the handles are done and the copies are made.
    """

    handles: tuple[_core.Handle, ...]
    inputs: Tensors
    result: Sequence[Any]
    buffers: Sequence[Any] = ()
    copies: Copies = ()
    landed: torch.Event | None = None

    @property
    def is_on_gpu(self) -> bool:
        """Whether the operations are on the memory of a GPU."""
        tensors = self.inputs or self.result
        return bool(tensors) and not tensors[0].is_cpu


def allreduce(
    group: _core.Group, tensor: torch.Tensor, op: ReduceOp, options: RunOptions, priority: int = 0
) -> Submission:
    """Replace a tensor by its reduction over all ranks; does not block."""
    buffer, copies = output_buffer(tensor)
    handle = reduce_in_place(group, buffer, op, options, priority)
    return Submission((handle,), (tensor,), [tensor], (), copies)


def allreduce_each(
    group: _core.Group, tensors: Tensors, op: ReduceOp, options: RunOptions
) -> Submission:
    """Replace each tensor by its reduction over all ranks."""
    reduce_op(op)  # checks the reduction before any tensor is submitted
    buffers = [output_buffer(tensor) for tensor in tensors]
    for buffer, _ in buffers:
        reduced_dtype(buffer)
    handles = [reduce_in_place(group, buffer, op, options) for buffer, _ in buffers]
    copies = tuple(copy for _, copies in buffers for copy in copies)
    return Submission(tuple(handles), tensors, tensors, (), copies)


def reduce_in_place(
    group: _core.Group, buffer: torch.Tensor, op: ReduceOp, options: RunOptions, priority: int = 0
) -> _core.Handle:
    """Replace the elements of a contiguous tensor by their reduction over all ranks."""
    address, dtype = buffer.data_ptr(), reduced_dtype(buffer)
    return group.allreduce(
        address, address, buffer.numel(), dtype, reduce_op(op), priority=priority, **options
    )


def allreduce_encoded(
    group: _core.Group,
    tensor: torch.Tensor,
    encoding: Encoding,
    options: RunOptions,
) -> Submission:
    """Replace a contiguous tensor by its average or sum; the engine encodes between hosts.

    Raises:
        UsageError: The tensor is not contiguous, or the residual is not a float32 tensor of the
            same size on the CPU.
        UnsupportedError: The engine cannot use the memory of the tensor.
    """
    buffer = check_encodable(tensor, encoding, torch.device("cpu"))
    residual = encoding.residual
    address = buffer.data_ptr()
    handle = group.allreduce(
        address,
        address,
        buffer.numel(),
        reduced_dtype(buffer),
        reduce_op(encoding.op),
        codec=encoding.codec,
        residual=0 if residual is None else residual.data_ptr(),
        priority=encoding.priority,
        **options,
    )
    return Submission((handle,), [tensor], [tensor], (residual,))


def check_encodable(
    tensor: torch.Tensor, encoding: Encoding, losses_on: torch.device
) -> torch.Tensor:
    """Check a tensor to average and its residual.

    Args:
        tensor: Tensor to average.
        encoding: Options of the average, which contain the residual.
        losses_on: Device on which the residual must be.

    Returns:
        The tensor, in a form whose memory the engine can use (see `usable`).

    Raises:
        UsageError: The tensor is not contiguous, or the residual is not a float32 tensor of the
            same size on that device.
        UnsupportedError: The engine cannot use the memory of the tensor.
    """
    buffer, residual = usable(tensor), encoding.residual
    if not tensor.is_contiguous():
        raise UsageError("an encoded allreduce needs a contiguous tensor; call contiguous() first")
    if residual is not None and not (
        residual.dtype == torch.float32
        and residual.device == losses_on
        and residual.is_contiguous()
        and residual.numel() == tensor.numel()
    ):
        raise UsageError(
            f"the residual has {residual.numel()} elements of {residual.dtype} on"
            f" {residual.device}; allowed: a contiguous tensor of {tensor.numel()} elements of"
            f" torch.float32 on {losses_on}"
        )
    return buffer


def broadcast(
    group: _core.Group, tensor: torch.Tensor, root: int, options: RunOptions
) -> Submission:
    """Replace a tensor by the tensor of the rank `root` of the group."""
    buffer, copies = output_buffer(tensor)
    handle = group.broadcast(buffer.data_ptr(), *extent(buffer), root, **options)
    return Submission((handle,), [tensor], [tensor], (), copies)


def reduce(
    group: _core.Group, tensor: torch.Tensor, op: ReduceOp, root: int, options: RunOptions
) -> Submission:
    """Replace the tensor of the rank `root` of the group by the reduction over all ranks."""
    buffer, copies = output_buffer(tensor)
    address = buffer.data_ptr()
    handle = group.reduce(
        address,
        address,
        buffer.numel(),
        reduced_dtype(buffer),
        reduce_op(op),
        root,
        **options,
    )
    return Submission((handle,), [tensor], [tensor], (), copies)


def all_gather(
    group: _core.Group, outputs: Tensors, inputs: Tensors, options: RunOptions
) -> Submission:
    """Fill each output with the inputs of all ranks, in the order of the ranks.

    An input may share the memory of the part of its output that belongs to this rank.
    """
    sources: list[torch.Tensor] = []
    targets: list[torch.Tensor] = []
    all_copies: Copies = ()
    for output, tensor in zip(outputs, inputs, strict=True):
        check_parts("all_gather", "output", output, tensor, group.size())
        buffer, copies = output_buffer(output)
        sources.append(dense(tensor))
        targets.append(buffer)
        all_copies += copies
    handles = [
        group.all_gather(source.data_ptr(), buffer.data_ptr(), *extent(source), **options)
        for source, buffer in zip(sources, targets, strict=True)
    ]
    return Submission(tuple(handles), inputs, outputs, sources, all_copies)


def all_gather_lists(
    group: _core.Group, outputs: Sequence[Tensors], inputs: Tensors, options: RunOptions
) -> Submission:
    """Fill `outputs[i][r]` with the i-th input of rank r; sizes may differ between ranks."""
    sources: list[torch.Tensor] = []
    targets: list[torch.Tensor] = []
    all_copies: Copies = ()
    for parts, tensor in zip(outputs, inputs, strict=True):
        check_list("all_gather", "outputs", parts, group.size())
        check_same_dtype([*parts, tensor])
        sources.append(dense(tensor))
        buffer, copies = flat_output_buffer(parts)
        targets.append(buffer)
        all_copies += copies
    handles: list[_core.Handle] = []
    for parts, source, buffer in zip(outputs, sources, targets, strict=True):
        count, dtype = extent(source)
        addresses = source.data_ptr(), buffer.data_ptr()
        if all(part.numel() == source.numel() for part in parts):
            handles.append(group.all_gather(*addresses, count, dtype, **options))
        else:
            counts = [extent(part)[0] for part in parts]
            handles.append(group.all_gather_v(*addresses, counts, dtype, **options))
    return Submission(tuple(handles), inputs, outputs, [*sources, *targets], all_copies)


def reduce_scatter(
    group: _core.Group, outputs: Tensors, inputs: Tensors, op: ReduceOp, options: RunOptions
) -> Submission:
    """Reduce each input over all ranks, and fill its output with this rank's part."""
    reduction = reduce_op(op)
    sources: list[torch.Tensor] = []
    targets: list[tuple[torch.Tensor, _core.DType]] = []
    all_copies: Copies = ()
    for output, tensor in zip(outputs, inputs, strict=True):
        check_parts("reduce_scatter", "input", tensor, output, group.size())
        buffer, copies = output_buffer(output)
        source = dense(tensor)
        sources.append(source)
        targets.append((buffer, reduced_dtype(source)))
        all_copies += copies
    handles = [
        group.reduce_scatter(
            source.data_ptr(), buffer.data_ptr(), buffer.numel(), dtype, reduction, **options
        )
        for source, (buffer, dtype) in zip(sources, targets, strict=True)
    ]
    return Submission(tuple(handles), inputs, outputs, sources, all_copies)


def reduce_scatter_list(
    group: _core.Group, output: torch.Tensor, parts: Tensors, op: ReduceOp, options: RunOptions
) -> Submission:
    """Fill the output with the reduction of all ranks' `parts[rank]`, where `rank` is this rank.

    Raises:
        UsageError: The number of parts is not the number of ranks, or the size of a part is not
            that of the output.
    """
    check_list("reduce_scatter", "inputs", parts, group.size())
    check_same_dtype([*parts, output])
    sizes = {part.numel() for part in parts}
    if sizes != {output.numel()}:
        raise UsageError(
            f"reduce_scatter of parts with {sorted(sizes)} elements into an output with"
            f" {output.numel()}; allowed: equal sizes, so pad the parts"
        )
    submission = reduce_scatter(group, [output], [flat_input(parts)], op, options)
    return submission._replace(inputs=parts)


def gather(
    group: _core.Group, outputs: Tensors, tensor: torch.Tensor, root: int, options: RunOptions
) -> Submission:
    """Fill `outputs[r]`, on the rank `root` of the group, with the input of rank r."""
    source = dense(tensor)
    copies: Copies = ()
    buffer, address = source, 0
    if group.rank() == root:
        check_list("gather", "outputs", outputs, group.size())
        check_equal_sizes("gather", outputs, tensor)
        buffer, copies = flat_output_buffer(outputs)
        address = buffer.data_ptr()
    handle = group.gather(source.data_ptr(), address, *extent(source), root, **options)
    return Submission((handle,), [tensor], outputs, (source, buffer), copies)


def scatter(
    group: _core.Group, output: torch.Tensor, parts: Tensors, root: int, options: RunOptions
) -> Submission:
    """Fill the output of rank r with `parts[r]` of the rank `root` of the group."""
    buffer, copies = output_buffer(output)
    source, address = buffer, 0
    if group.rank() == root:
        check_list("scatter", "inputs", parts, group.size())
        check_equal_sizes("scatter", parts, output)
        source = flat_input(parts)
        address = source.data_ptr()
    handle = group.scatter(address, buffer.data_ptr(), *extent(buffer), root, **options)
    return Submission((handle,), parts, [output], (source,), copies)


def all_to_all(
    group: _core.Group, outputs: Tensors, inputs: Tensors, options: RunOptions
) -> Submission:
    """Fill `outputs[r]` with the input that rank r has for this rank; sizes may differ."""
    check_list("all_to_all", "outputs", outputs, group.size())
    check_list("all_to_all", "inputs", inputs, group.size())
    check_same_dtype([*outputs, *inputs])
    source = flat_input(inputs)
    buffer, copies = flat_output_buffer(outputs)
    sent = [extent(part)[0] for part in inputs]
    received = [extent(part)[0] for part in outputs]
    handles = _exchange(group, source, buffer, (sent, received), options)
    return Submission(handles, inputs, outputs, (source, buffer), copies)


def all_to_all_rows(
    group: _core.Group,
    output: torch.Tensor,
    tensor: torch.Tensor,
    rows: tuple[Sequence[int], Sequence[int]],
    options: RunOptions,
) -> Submission:
    """Exchange rows, which are slices along the first dimension.

    Args:
        group: The engine's own object for the group.
        output: Tensor for the received rows: from rank 0, then from rank 1, and so on.
        tensor: Tensor with the rows to send: for rank 0, then for rank 1, and so on.
        rows: Pair of lists: the number of rows from each rank, and the number of rows to each rank.
            An empty list means equal shares.
        options: Options of the engine's operation.
    """
    check_same_dtype([output, tensor])
    received = part_sizes("output", output, rows[0], group.size())
    sent = part_sizes("input", tensor, rows[1], group.size())
    buffer, copies = output_buffer(output)
    source = dense(tensor)
    handles = _exchange(group, source, buffer, (sent, received), options)
    return Submission(handles, [tensor], [output], (source, buffer), copies)


def _exchange(
    group: _core.Group,
    source: torch.Tensor,
    target: torch.Tensor,
    counts: tuple[list[int], list[int]],
    options: RunOptions,
) -> tuple[_core.Handle, ...]:
    """Exchange parts with all ranks.

    Args:
        group: Group of the engine.
        source: Contiguous tensor with the parts to send, in the order of the ranks.
        target: Contiguous tensor for the parts to receive, in the order of the ranks.
        counts: Pair of lists: the number of elements to each rank, and the number from each rank.
        options: Options of the operations.
    """
    sent, received = counts
    addresses, dtype = (source.data_ptr(), target.data_ptr()), extent(source)[1]
    if not isinstance(cast("object", group), _core.DeviceGroup):
        return (group.all_to_all_v(*addresses, sent, received, dtype, **options),)
    parts = cut_elements(source, sent), cut_elements(target, received)
    return exchange_by_messages(group, *parts, options)


def exchange_by_messages(
    group: _core.Group,
    sources: Tensors,
    targets: Tensors,
    options: RunOptions,
    piece_bytes: int = 32 << 20,
) -> tuple[_core.Handle, ...]:
    """Exchange parts of different sizes between all ranks by messages.

    Groups for GPUs have no such collective, because a rank knows only the sizes of its own parts.
    Parts are cut into pieces, and sends and receives of pieces alternate. Otherwise a send could
    wait for a free buffer before the receives that the peers need are submitted.

    Args:
        group: Group of the engine.
        sources: Contiguous tensors to send, one to each rank.
        targets: Contiguous tensors to receive, one from each rank.
        options: Options of the operations.
        piece_bytes: Largest size of a message in bytes. The default, 32 MiB, is the size of the
            host buffers through which a GPU sends.
    """
    rank, size = group.rank(), group.size()
    with torch.no_grad():
        targets[rank].copy_(sources[rank])
    handles: list[_core.Handle] = []
    for distance in range(1, size):
        to, origin = (rank + distance) % size, (rank - distance) % size
        outgoing, incoming = (_pieces(part, piece_bytes) for part in (sources[to], targets[origin]))
        for sent, received in zip_longest(outgoing, incoming):
            for piece, peer, pass_on in ((sent, to, group.send), (received, origin, group.recv)):
                if piece is not None:
                    handles.append(
                        pass_on(piece.data_ptr(), *extent(piece), peer, _EXCHANGE_TAG, **options)
                    )
    return tuple(handles)


def _pieces(tensor: torch.Tensor, piece_bytes: int) -> Tensors:
    """Cut a flat tensor into pieces of at most `piece_bytes` bytes."""
    longest = max(1, piece_bytes // tensor.element_size())
    return tensor.split(longest) if tensor.numel() else ()  # pyright: ignore


def send(
    group: _core.Group, tensor: torch.Tensor, peer: int, tag: int, options: RunOptions
) -> Submission:
    """Send a tensor to the rank `peer` of the group."""
    source = dense(tensor)
    handle = group.send(source.data_ptr(), *extent(source), peer, tag, **options)
    return Submission((handle,), [tensor], [tensor], (source,))


def receive(
    group: _core.Group, tensor: torch.Tensor, peer: int, tag: int, options: RunOptions
) -> Submission:
    """Receive a tensor from the rank `peer` of the group, or from any rank if `peer` is -1."""
    buffer, copies = output_buffer(tensor)
    handle = group.recv(buffer.data_ptr(), *extent(buffer), peer, tag, **options)
    return Submission((handle,), [tensor], [tensor], (), copies)


def part_sizes(role: str, tensor: torch.Tensor, rows: Sequence[int], ranks: int) -> list[int]:
    """Return the number of elements that each rank's part has.

    Args:
        role: Word for the tensor in error messages: input or output.
        tensor: Tensor that is divided along its first dimension.
        rows: Number of rows for each rank; an empty list means equal shares.
        ranks: Number of ranks.

    Raises:
        UsageError: The numbers of rows do not add up to the tensor's rows, or the rows cannot be
            shared equally.
    """
    length = tensor.shape[0] if tensor.dim() else 1
    if not rows:
        if length % ranks:
            raise UsageError(
                f"all_to_all of an {role} with {length} rows among {ranks} ranks; allowed: a"
                " multiple of the number of ranks; otherwise pass the number of rows for each rank"
            )
        rows = [length // ranks] * ranks
    if len(rows) != ranks or sum(rows) != length:
        raise UsageError(
            f"all_to_all of an {role} with {length} rows in parts of {list(rows)}; allowed:"
            f" {ranks} parts that add up to {length}"
        )
    per_row = extent(tensor)[0] // length if length else 0
    return [count * per_row for count in rows]


def check_parts(
    operation: str, role: str, total: torch.Tensor, part: torch.Tensor, ranks: int
) -> None:
    """Check that a tensor is as large as the parts of all ranks together.

    Args:
        operation: Name of the operation, for the error message.
        role: Word for `total` in the error message: input or output.
        total: Tensor that contains a part for each rank.
        part: Part of a single rank.
        ranks: Number of ranks.

    Raises:
        UsageError: The total is not as large as all parts together, or the dtypes differ.
    """
    check_same_dtype([total, part])
    if total.numel() != part.numel() * ranks:
        raise UsageError(
            f"{operation} of {part.numel()} elements per rank with an {role} of {total.numel()};"
            f" allowed: {part.numel() * ranks} elements, for {ranks} ranks"
        )


def check_list(operation: str, role: str, tensors: Tensors, ranks: int) -> None:
    """Check that there is one tensor for each rank.

    Args:
        operation: Name of the operation, for the error message.
        role: Word for the tensors in the error message: inputs or outputs.
        tensors: Tensors to count.
        ranks: Number of ranks.

    Raises:
        UsageError: The number of tensors is not the number of ranks.
    """
    if len(tensors) != ranks:
        raise UsageError(
            f"{operation} with {len(tensors)} {role}; allowed: {ranks}, one for each rank"
        )


def check_equal_sizes(operation: str, tensors: Tensors, own_tensor: torch.Tensor) -> None:
    """Check that the tensors for all ranks have the size and dtype of this rank's own tensor.

    Raises:
        UsageError: A size or a dtype differs.
    """
    check_same_dtype([*tensors, own_tensor])
    for rank, tensor in enumerate(tensors):
        if tensor.numel() != own_tensor.numel():
            raise UsageError(
                f"{operation}: the tensor for rank {rank} has {tensor.numel()} elements; allowed:"
                f" {own_tensor.numel()}, the size of this rank's own tensor"
            )
