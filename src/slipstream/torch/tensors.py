"""Conversion of tensors to the engine's arguments: an address, a count and a dtype.

The engine works on contiguous memory. Tensors that are not contiguous, and lists of tensors, are
copied into contiguous memory before an operation, and back when the operation is complete.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.distributed import ReduceOp

from slipstream import _core
from slipstream.errors import UnsupportedError, UsageError
from slipstream.torch.cuda.kinds import KINDS

DTYPES: dict[torch.dtype, _core.DType] = {
    torch.int8: _core.DType.INT8,
    torch.uint8: _core.DType.UINT8,
    torch.int16: _core.DType.INT16,
    torch.uint16: _core.DType.UINT16,
    torch.int32: _core.DType.INT32,
    torch.uint32: _core.DType.UINT32,
    torch.int64: _core.DType.INT64,
    torch.uint64: _core.DType.UINT64,
    torch.float16: _core.DType.FLOAT16,
    torch.bfloat16: _core.DType.BFLOAT16,
    torch.float32: _core.DType.FLOAT32,
    torch.float64: _core.DType.FLOAT64,
    torch.complex64: _core.DType.COMPLEX64,
    torch.complex128: _core.DType.COMPLEX128,
    torch.bool: _core.DType.BOOL,
}

# The keys are the hashes of PyTorch's class, because a comparison of its objects is slow.
REDUCE_OPS: dict[int, _core.ReduceOp] = {
    ReduceOp.SUM.value: _core.ReduceOp.SUM,
    ReduceOp.AVG.value: _core.ReduceOp.AVERAGE,
    ReduceOp.MIN.value: _core.ReduceOp.MIN,
    ReduceOp.MAX.value: _core.ReduceOp.MAX,
    ReduceOp.PRODUCT.value: _core.ReduceOp.PRODUCT,
    ReduceOp.BAND.value: _core.ReduceOp.BAND,
    ReduceOp.BOR.value: _core.ReduceOp.BOR,
    ReduceOp.BXOR.value: _core.ReduceOp.BXOR,
}

# Pairs of (target, source), to copy when the operation is complete.
Copies = tuple[tuple[torch.Tensor, torch.Tensor], ...]


_STRIDED = torch.strided


def kind_of(op: ReduceOp) -> ReduceOp.RedOpType:
    """Return the kind of a reduction; PyTorch wraps it in an object, together with a factor."""
    return op.op  # pyright: ignore


def reduce_op(op: ReduceOp) -> _core.ReduceOp:
    """Return the engine's name of a PyTorch reduction.

    Raises:
        UnsupportedError: The reduction is PREMUL_SUM, which only NCCL supports.
    """
    reduction = REDUCE_OPS.get(hash(op))
    if reduction is None:
        raise UnsupportedError(
            f"reduction {kind_of(op).name}: slipstream has SUM, AVG, MIN, MAX, PRODUCT, BAND, BOR,"
            " BXOR; multiply the tensor first, then use SUM"
        )
    return reduction


def reduced_dtype(tensor: torch.Tensor) -> _core.DType:
    """Return the engine's dtype for a tensor that the engine will reduce.

    Raises:
        UnsupportedError: The engine cannot compute with the tensor's dtype, such as float8.
    """
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None:
        raise UnsupportedError(
            f"a reduction of {tensor.dtype}: slipstream adds"
            f" {', '.join(str(each)[6:] for each in DTYPES)}; convert the tensor first"
        )
    return dtype


def extent(tensor: torch.Tensor) -> tuple[int, _core.DType]:
    """Return a tensor's count and dtype for sending; a dtype that is unknown counts as bytes."""
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None:
        return tensor.numel() * tensor.element_size(), _core.DType.UINT8
    return tensor.numel(), dtype


def single(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the only tensor of a list; PyTorch's API has lists for processes with several GPUs.

    Raises:
        UsageError: The list is empty, or has more than one tensor.
    """
    if len(tensors) != 1:
        raise UsageError(
            f"{len(tensors)} tensors in one operation; allowed: 1 a rank; make one call for each"
        )
    return tensors[0]


def is_reachable(tensor: torch.Tensor) -> bool:
    """Return whether the memory of a tensor is on the CPU or on a CUDA GPU."""
    return tensor.is_cpu or tensor.device.type in KINDS


def usable(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose memory the engine can reach.

    Raises:
        UnsupportedError: The tensor is not in the memory of the CPU or of a CUDA GPU, is sparse, or
            has no memory of its own.
    """
    if not is_reachable(tensor):
        raise UnsupportedError(
            f"a tensor on {tensor.device}: slipstream takes tensors on the CPU and on CUDA GPUs;"
            " move it with .cpu()"
        )
    if tensor.layout is not torch.strided:
        raise UnsupportedError(
            f"a tensor with layout {tensor.layout}: slipstream takes dense tensors here, and"
            " sparse_coo in all_reduce; convert it with .to_dense()"
        )
    return with_memory(tensor)


def with_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor itself; if it comes from a functional collective, wait for it and unwrap it.

    Raises:
        UnsupportedError: The tensor has no memory of its own, like a DTensor, or its memory has
            been freed.
    """
    if tensor.data_ptr() or not tensor.numel():
        return tensor
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    if isinstance(tensor, AsyncCollectiveTensor):
        return tensor.trigger_wait()
    raise UnsupportedError(
        f"a {type(tensor).__name__} of shape {tuple(tensor.shape)} without memory of its own:"
        " slipstream takes plain tensors; for a DTensor (such as a parameter of a module sharded by"
        " fully_shard), pass .to_local()"
    )


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor itself if the engine can use its memory, otherwise a contiguous copy.

    Raises:
        UnsupportedError: The engine cannot reach the memory of the tensor; see `usable`.
    """
    tensor = usable(tensor)
    # A lazily conjugated or negated tensor counts as contiguous, but its memory has other values.
    if tensor.is_complex():
        tensor = tensor.resolve_conj()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    return tensor if tensor.is_contiguous() else tensor.detach().contiguous()


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether the engine can use the memory of a tensor without a copy (the usual case)."""
    return (
        tensor.is_cpu
        and tensor.layout is _STRIDED
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not tensor.is_conj()
        and tensor.data_ptr() != 0
    )


def output_buffer(tensor: torch.Tensor) -> tuple[torch.Tensor, Copies]:
    """Return contiguous memory for an output, and the copies to make later (usually none)."""
    buffer = dense(tensor)
    return buffer, (() if buffer is tensor else ((tensor, buffer),))


def flat_input(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return one flat tensor with the elements of all tensors, one after another."""
    flat = view_over(tensors)
    if flat is not None:
        return flat
    return torch.cat([dense(tensor).detach().reshape(-1) for tensor in tensors])


def flat_output_buffer(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, Copies]:
    """Return one flat tensor for several outputs, and the copies to make later."""
    flat = view_over(tensors)
    if flat is not None:
        return flat, ()
    for tensor in tensors:
        usable(tensor)
    first = tensors[0]
    flat = torch.empty(
        sum(tensor.numel() for tensor in tensors), dtype=first.dtype, device=first.device
    )
    parts = cut(flat, [tensor.numel() for tensor in tensors])
    return flat, tuple(
        (tensor, part.view(tensor.shape)) for tensor, part in zip(tensors, parts, strict=True)
    )


def view_over(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return a flat view over tensors that are adjacent in memory, like the results of torch.chunk.

    Returns:
        The view, or None if the tensors are not adjacent.
    """
    storage, end = None, 0
    for tensor in tensors:
        is_strided = tensor.layout is torch.strided
        if not (is_reachable(tensor) and is_strided and tensor.is_contiguous()):
            return None
        if not tensor.data_ptr():  # empty, or without memory of its own
            return None
        if storage is None:
            storage, end = tensor.untyped_storage().data_ptr(), tensor.data_ptr()
        if (
            tensor.is_conj()
            or tensor.is_neg()
            or tensor.data_ptr() != end
            or tensor.untyped_storage().data_ptr() != storage
        ):
            return None
        end += tensor.numel() * tensor.element_size()
    count = sum(tensor.numel() for tensor in tensors)
    first = tensors[0].detach()
    return first.as_strided((count,), (1,), first.storage_offset())


def cut(tensor: torch.Tensor, sizes: list[int]) -> tuple[torch.Tensor, ...]:
    """Cut a tensor along its first dimension into successive views of the given sizes."""
    return tensor.split(sizes)  # pyright: ignore


def cut_elements(tensor: torch.Tensor, counts: list[int]) -> tuple[torch.Tensor, ...]:
    """Cut a contiguous tensor into flat views of `counts` elements (bytes if `extent` says so)."""
    flat = tensor.detach().reshape(-1)
    return cut(flat if tensor.dtype in DTYPES else flat.view(torch.uint8), counts)


def device_of(tensors: Sequence[torch.Tensor]) -> torch.device | None:
    """Return the GPU on which an operation's tensors are, or None for the CPU.

    Raises:
        UsageError: The tensors are on several devices.
    """
    if all(tensor.is_cpu for tensor in tensors):
        return None
    devices = {tensor.device for tensor in tensors}
    if len(devices) > 1:
        raise UsageError(
            f"tensors on {', '.join(sorted(map(str, devices)))} in one operation; allowed: one"
            " device, so move them first"
        )
    (device,) = devices
    return device if device.type in KINDS else None


def check_same_dtype(tensors: Sequence[torch.Tensor]) -> None:
    """Check that all tensors of an operation have the same dtype.

    Raises:
        UsageError: The dtypes of the tensors differ.
    """
    dtypes = {tensor.dtype for tensor in tensors}
    if len(dtypes) != 1:
        raise UsageError(
            f"tensors of {', '.join(sorted(map(str, dtypes)))} in one operation; allowed: one"
            " dtype, so convert them first"
        )


def copy_out(copies: Copies) -> None:
    """Copy results into the caller's tensors, including tensors made in inference mode.

    Raises:
        UsageError: A target has elements that share memory, like the result of expand(), but their
            results differ.
    """
    for target, source in copies:
        with torch.inference_mode() if target.is_inference() else torch.no_grad():
            for dim, stride in enumerate(target.stride()):
                if stride == 0 and target.shape[dim] > 1:
                    target, source = target.narrow(dim, 0, 1), _first_slice(source, dim)
            target.copy_(source)


def _first_slice(results: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the first slice along a dimension, after a check that all slices are equal."""
    first = results.narrow(dim, 0, 1)
    is_same = (results == first) | ((results != results) & (first != first))
    if not is_same.all():
        raise UsageError(
            f"the output repeats its elements along dimension {dim}, like the result of expand(),"
            f" but the results of shape {tuple(results.shape)} differ there; pass a .clone() of it"
        )
    return first
