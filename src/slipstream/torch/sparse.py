"""The sum of sparse_coo tensors over all ranks: gather indices and values, then coalesce."""

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

    Blocks, unlike the dense collectives: the second message's size is known after the first.

    Raises:
        UnsupportedError: another reduction, which has no meaning where values are missing.
        MismatchError: the shapes differ between ranks.
    """
    kind = kind_of(op)
    if kind not in (ReduceOp.SUM, ReduceOp.AVG):
        raise UnsupportedError(
            f"reduction {kind.name} of a sparse tensor; allowed: SUM, AVG; convert with .to_dense()"
        )
    mine = tensor.detach().coalesce()
    size = group.size()
    counts = _check_and_count(group, mine, options)
    indices = _gather_rows(group, mine.indices().t().contiguous(), counts, options)
    values = _gather_rows(group, mine.values().contiguous(), counts, options)
    total = torch.sparse_coo_tensor(  # pyright: ignore[reportUnknownMemberType]
        indices.t(),
        values,
        mine.shape,
        check_invariants=False,  # all had the same shape
    ).coalesce()
    if kind == ReduceOp.AVG:
        total = total / size
    with torch.no_grad():
        tensor.copy_(total)


def _check_and_count(group: _core.Group, mine: torch.Tensor, options: RunOptions) -> list[int]:
    """Return how many values each rank has, once all have shown the same shape."""
    header = torch.tensor([mine._nnz(), mine.sparse_dim(), *mine.shape])
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
    except BaseException:  # Ctrl-C too: the engine goes on
        for handle in submission.handles:
            keep_until_done(handle, (submission,))
        raise
    copy_out(submission.copies)
