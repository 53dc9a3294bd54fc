"""Functional collectives, plain and with gradients, against values worked out locally.

torchrun --nproc-per-node 2 functional.py
"""

import os

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

ROWS, COLUMNS = 4, 3


def rows_of(rank: int) -> torch.Tensor:
    """Return the rows of `rank`, which any rank can compute."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(ROWS * dist.get_world_size(), COLUMNS, generator=generator)


def all_rows() -> list[torch.Tensor]:
    return [rows_of(rank) for rank in range(dist.get_world_size())]


def check_single(group: dist.ProcessGroup) -> None:
    """Check calls with one tensor, whose result is awaited on first use."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine, stacked = rows_of(rank), torch.stack(all_rows())
    close = torch.testing.assert_close
    close(funcol.all_reduce(mine, "sum", group) + 0, stacked.sum(0))
    close(funcol.all_reduce(mine, "max", group) + 0, stacked.amax(0))
    close(funcol.all_gather_tensor(mine, 0, group) + 0, stacked.flatten(0, 1))
    close(funcol.all_gather_tensor(mine, 1, group) + 0, torch.cat(all_rows(), 1))
    block = slice(rank * ROWS, (rank + 1) * ROWS)
    close(funcol.reduce_scatter_tensor(mine, "sum", 0, group) + 0, stacked.sum(0)[block])
    close(funcol.broadcast(mine, size - 1, group) + 0, rows_of(size - 1))
    received = funcol.all_to_all_single(mine, [ROWS] * size, [ROWS] * size, group)
    close(received + 0, stacked[:, block].flatten(0, 1))


def check_results_in_other_collectives(group: dist.ProcessGroup) -> None:
    """Check that a result that is not awaited yet can be an input or output like any tensor."""
    size = dist.get_world_size()

    def ones() -> torch.Tensor:
        result = funcol.all_reduce(torch.ones(3), "sum", group)
        assert type(result) is funcol.AsyncCollectiveTensor
        return result

    summed = ones()
    dist.all_reduce(summed)
    torch.testing.assert_close(summed + 0, torch.full((3,), float(size * size)))
    parts = [torch.empty(3) for _ in range(size)]
    dist.all_gather(parts, ones())
    torch.testing.assert_close(torch.cat(parts), torch.full((3 * size,), float(size)))
    promised = [ones() for _ in range(size)]
    dist.all_gather(promised, torch.full((3,), 5.0))
    torch.testing.assert_close(promised[0] + 0, torch.full((3,), 5.0))
    output = torch.empty(3)
    dist.reduce_scatter(output, [ones() for _ in range(size)])
    torch.testing.assert_close(output, torch.full((3,), float(size * size)))


def check_uneven_all_to_all(group: dist.ProcessGroup) -> None:
    """Rank r sends p + 1 rows to peer p."""
    rank, size = dist.get_rank(), dist.get_world_size()
    splits = [peer + 1 for peer in range(size)]
    sent = torch.full((sum(splits), 2), float(rank))
    received = funcol.all_to_all_single(sent, [rank + 1] * size, splits, group)
    wanted = torch.arange(size).repeat_interleave(rank + 1).float()
    torch.testing.assert_close(received + 0, wanted[:, None].expand(-1, 2))


def check_coalesced(group: dist.ProcessGroup) -> None:
    """Check calls with several tensors of different shapes."""
    rank = dist.get_rank()
    stacked = torch.stack(all_rows())
    pair = [rows_of(rank), rows_of(rank)[:, 0].contiguous() * 2]
    wanted = [stacked, stacked[:, :, 0] * 2]
    close = torch.testing.assert_close
    for found, want in zip(funcol.all_reduce_coalesced(pair, "sum", group), wanted, strict=True):
        close(found + 0, want.sum(0))
    gathered = funcol.all_gather_into_tensor_coalesced(pair, group)
    for found, want in zip(gathered, wanted, strict=True):
        close(found + 0, want.flatten(0, 1))
    scattered = funcol.reduce_scatter_tensor_coalesced(pair, "sum", [0, 0], group)
    block = slice(rank * ROWS, (rank + 1) * ROWS)
    for found, want in zip(scattered, wanted, strict=True):
        close(found + 0, want.sum(0)[block])


def check_gradients(group: dist.ProcessGroup) -> None:
    """Check that the gradient of all_gather is reduce_scatter, and vice versa."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = rows_of(rank).requires_grad_()
    weights = torch.arange(size * mine.shape[0]).float()[:, None]
    (funcol.all_gather_tensor_autograd(mine, 0, group) * weights).sum().backward()
    own = weights[rank * mine.shape[0] : (rank + 1) * mine.shape[0]]
    torch.testing.assert_close(mine.grad, (own * size).expand_as(mine))
    mine = rows_of(rank).requires_grad_()
    scattered = funcol.reduce_scatter_tensor_autograd(mine, "sum", 0, group)
    (scattered * (rank + 1)).sum().backward()
    wanted = torch.arange(1.0, size + 1).repeat_interleave(ROWS)[:, None].expand_as(mine)
    torch.testing.assert_close(mine.grad, wanted)


def main() -> None:
    dist.init_process_group(os.environ.get("BACKEND", "slipstream"))
    group = dist.group.WORLD
    assert group is not None
    check_single(group)
    check_results_in_other_collectives(group)
    check_uneven_all_to_all(group)
    check_coalesced(group)
    check_gradients(group)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
