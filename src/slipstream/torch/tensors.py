"""From tensors to what the engine takes: an address, a count and a dtype.

The engine works on memory that is contiguous. Tensors that are not, and lists of tensors, are
copied into such memory before an operation, and out of it when the operation is complete.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.distributed import ReduceOp

from slipstream import _core
from slipstream.errors import UnsupportedError, UsageError

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

# By number, which is what PyTorch's class hashes to: it compares slowly.
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

# Where a copy must go when the operation is complete: (to, from).
Copies = tuple[tuple[torch.Tensor, torch.Tensor], ...]


_STRIDED = torch.strided


def kind_of(op: ReduceOp) -> ReduceOp.RedOpType:
    """Return what PyTorch's C++ code wraps to pass a factor along."""
    return op.op  # pyright: ignore


def reduce_op(op: ReduceOp) -> _core.ReduceOp:
    """Return the engine's word for a reduction.

    Raises:
        UnsupportedError: PREMUL_SUM, which only NCCL has.
    """
    found = REDUCE_OPS.get(hash(op))
    if found is None:
        raise UnsupportedError(
            f"reduction {kind_of(op).name}: slipstream has SUM, AVG, MIN, MAX, PRODUCT, BAND, BOR,"
            " BXOR; multiply the tensor first, then use SUM"
        )
    return found


def reduced_dtype(tensor: torch.Tensor) -> _core.DType:
    """Return the dtype of a tensor whose values will be combined.

    Raises:
        UnsupportedError: the engine cannot compute with the dtype, such as float8.
    """
    found = DTYPES.get(tensor.dtype)
    if found is None:
        raise UnsupportedError(
            f"a reduction of {tensor.dtype}: slipstream adds"
            f" {', '.join(str(dtype)[6:] for dtype in DTYPES)}; convert the tensor first"
        )
    return found


def extent(tensor: torch.Tensor) -> tuple[int, _core.DType]:
    """Return count and dtype of a tensor that is only moved; unknown dtypes move as bytes."""
    found = DTYPES.get(tensor.dtype)
    if found is None:
        return tensor.numel() * tensor.element_size(), _core.DType.UINT8
    return tensor.numel(), found


def only(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the single tensor of a list: PyTorch's API has lists for several GPUs a process.

    Raises:
        UsageError: there are more, or none.
    """
    if len(tensors) != 1:
        raise UsageError(
            f"{len(tensors)} tensors in one operation; allowed: 1 a rank, so call once for each"
        )
    return tensors[0]


def usable(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, with memory that the engine can reach.

    Raises:
        UnsupportedError: the tensor is not in CPU memory, is sparse, or has no memory of its own.
    """
    if not tensor.is_cpu:
        raise UnsupportedError(
            f"a tensor on {tensor.device}: slipstream takes CPU tensors; move it with .cpu(), or"
            " make the group for these tensors with the backend nccl"
        )
    if tensor.layout is not torch.strided:
        raise UnsupportedError(
            f"a tensor with layout {tensor.layout}: slipstream takes dense tensors here, and"
            " sparse_coo in all_reduce; convert it with .to_dense()"
        )
    return with_memory(tensor)


def with_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor itself, or the one that a functional collective's result stands for.

    Such a result is waited for.

    Raises:
        UnsupportedError: the tensor has no memory of its own, as a DTensor, or has it no more.
    """
    if tensor.data_ptr() or not tensor.numel():
        return tensor
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    if isinstance(tensor, AsyncCollectiveTensor):
        return tensor.trigger_wait()
    raise UnsupportedError(
        f"a {type(tensor).__name__} of shape {tuple(tensor.shape)} without memory of its own:"
        " slipstream takes plain tensors; of a DTensor (the parameters of a module that"
        " fully_shard has sharded are such), pass .to_local()"
    )


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor itself where the engine can use its memory, else a contiguous copy.

    Raises:
        UnsupportedError: as `usable` does.
    """
    tensor = usable(tensor)
    # A lazy conjugate or negative is contiguous, and its memory is not ready.
    if tensor.is_complex():
        tensor = tensor.resolve_conj()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    return tensor if tensor.is_contiguous() else tensor.detach().contiguous()


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether the engine can use the tensor's memory as it is, as that of most."""
    return (
        tensor.is_cpu
        and tensor.layout is _STRIDED
        and tensor.is_contiguous()
        and not tensor.is_neg()
        and not tensor.is_conj()
        and tensor.data_ptr() != 0
    )


def written(tensor: torch.Tensor) -> tuple[torch.Tensor, Copies]:
    """Return memory for an output, and what to copy when it is there (nothing, as a rule)."""
    buffer = dense(tensor)
    return buffer, (() if buffer is tensor else ((tensor, buffer),))


def joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return one flat tensor with the values of all, one after another."""
    flat = spanning(tensors)
    if flat is not None:
        return flat
    return torch.cat([dense(tensor).detach().reshape(-1) for tensor in tensors])


def room_for(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, Copies]:
    """Return one flat tensor for outputs that follow one another, and what to copy then."""
    flat = spanning(tensors)
    if flat is not None:
        return flat, ()
    for tensor in tensors:
        usable(tensor)
    flat = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=tensors[0].dtype)
    parts = cut(flat, [tensor.numel() for tensor in tensors])
    return flat, tuple(
        (tensor, part.view(tensor.shape)) for tensor, part in zip(tensors, parts, strict=True)
    )


def spanning(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return a flat view over tensors that follow one another in memory, as torch.chunk does it.

    Returns None where they do not.
    """
    storage, end = None, 0
    for tensor in tensors:
        if not (tensor.is_cpu and tensor.layout is torch.strided and tensor.is_contiguous()):
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
    """Return views of the given sizes along the first dimension, one after another."""
    return tensor.split(sizes)  # pyright: ignore


def check_same_dtype(tensors: Sequence[torch.Tensor]) -> None:
    """Check that all tensors of an operation have one dtype.

    Raises:
        UsageError: they do not.
    """
    dtypes = {tensor.dtype for tensor in tensors}
    if len(dtypes) != 1:
        raise UsageError(
            f"tensors of {', '.join(sorted(map(str, dtypes)))} in one operation; allowed: one"
            " dtype, so convert them first"
        )


def copy_out(copies: Copies) -> None:
    """Copy results to where the caller wants them, also if that was made in inference mode.

    Raises:
        UsageError: a tensor repeats its elements, as expand() makes it, and the results differ.
    """
    for target, source in copies:
        with torch.inference_mode() if target.is_inference() else torch.no_grad():
            for dim, stride in enumerate(target.stride()):
                if stride == 0 and target.shape[dim] > 1:
                    target, source = target.narrow(dim, 0, 1), _once(source, dim)
            target.copy_(source)


def _once(results: torch.Tensor, dim: int) -> torch.Tensor:
    """Return what is the same all along a dimension."""
    first = results.narrow(dim, 0, 1)
    is_same = (results == first) | ((results != results) & (first != first))
    if not is_same.all():
        raise UsageError(
            f"the output repeats its elements along dimension {dim}, as expand() makes it, but the"
            f" results of shape {tuple(results.shape)} differ there; pass a .clone() of it"
        )
    return first
