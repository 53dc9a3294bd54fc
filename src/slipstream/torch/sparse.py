"""Sum of sparse_coo tensors over all ranks: indices and values are gathered and coalesced."""

from __future__ import annotations

import torch
from torch.distributed import ReduceOp

from slipstream import _core
from slipstream.comm.handle import keep_until_done
from slipstream.errors import MismatchError, UnsupportedError
from slipstream.torch import collectives
from slipstream.torch.collectives import RunOptions
from slipstream.torch.tensors import copy_out, cut, kind_of


def allreduce_sparse(
    group: _core.Group, tensor: torch.Tensor, op: ReduceOp, options: RunOptions
) -> None:
    """Replace a sparse_coo tensor by its sum (or average) over all ranks.

    The function blocks, unlike the dense collectives, because the first message contains the size
    of the second.

    Raises:
        UnsupportedError: The reduction is neither a sum nor an average.
        MismatchError: The shapes differ between ranks.
    """
    kind = kind_of(op)
    if kind not in (ReduceOp.SUM, ReduceOp.AVG):
        raise UnsupportedError(
            f"reduction {kind.name} of a sparse tensor; allowed: SUM, AVG; convert with .to_dense()"
        )
    own_tensor = tensor.detach().cpu().coalesce()
    size = group.size()
    counts = _check_and_count(group, own_tensor, options)
    indices = _gather_rows(group, own_tensor.indices().t().contiguous(), counts, options)
    values = _gather_rows(group, own_tensor.values().contiguous(), counts, options)
    total = torch.sparse_coo_tensor(  # pyright: ignore[reportUnknownMemberType]
        indices.t(),
        values,
        own_tensor.shape,
        check_invariants=False,  # not needed: all shapes are the same
    ).coalesce()
    if kind == ReduceOp.AVG:
        total = total / size
    with torch.no_grad():
        tensor.copy_(total)


def _check_and_count(
    group: _core.Group, own_tensor: torch.Tensor, options: RunOptions
) -> list[int]:
    """Return each rank's number of values, after a check that all shapes are equal."""
    header = torch.tensor([own_tensor._nnz(), own_tensor.sparse_dim(), *own_tensor.shape])
    headers = [torch.empty_like(header) for _ in range(group.size())]
    _finish(collectives.all_gather_lists(group, [headers], [header], options))
    shapes = [[int(length) for length in row[1:]] for row in headers]
    if any(shape != shapes[0] for shape in shapes):
        raise MismatchError(
            f"all_reduce of sparse tensors: sparse dimensions and shapes by rank are {shapes};"
            " all ranks must pass equal ones"
        )
    return [int(row[0]) for row in headers]


def _gather_rows(
    group: _core.Group, rows: torch.Tensor, counts: list[int], options: RunOptions
) -> torch.Tensor:
    gathered = rows.new_empty(sum(counts), *rows.shape[1:])
    parts = cut(gathered, counts)
    _finish(collectives.all_gather_lists(group, [parts], [rows], options))
    return gathered


def _finish(submission: collectives.Submission) -> None:
    try:
        for handle in submission.handles:
            handle.wait()
    except BaseException:  # after Ctrl-C too, the engine still uses the memory
        for handle in submission.handles:
            keep_until_done(handle, (submission,))
        raise
    copy_out(submission.copies)
