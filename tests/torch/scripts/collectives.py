"""Every collective of torch.distributed, over dtypes and shapes, against values worked out locally.

torchrun --nproc-per-node 2 collectives.py
"""

import os
from collections.abc import Callable

import torch
import torch.distributed as dist

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.complex128,
)
GLOO_LACKS = (torch.int16, torch.bool, torch.complex64, torch.complex128)
SHAPES = ((), (0,), (1,), (5,), (3, 7), (4, 1001))


def supported(dtype: torch.dtype) -> bool:
    """Return whether gloo can do this too, so that the script can run with it for comparison."""
    return dist.get_backend() != "gloo" or dtype not in GLOO_LACKS


def tensor_of(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return the tensor of `rank`: small whole numbers, so that sums are exact."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(0, 5, shape, generator=generator).to(dtype)


def check_equal(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)


def check_moves(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Check collectives that add nothing, from and to every root."""
    rank, size = dist.get_rank(), dist.get_world_size()
    each = [tensor_of(r, shape, dtype) for r in range(size)]
    blank = torch.zeros(shape, dtype=dtype)

    gathered = [blank.clone() for _ in range(size)]
    dist.all_gather(gathered, each[rank])
    for found, wanted in zip(gathered, each, strict=True):
        check_equal(found, wanted)

    for root in range(size):
        value = each[rank].clone()
        dist.broadcast(value, src=root)
        check_equal(value, each[root])

        gathered = [blank.clone() for _ in range(size)]
        dist.gather(each[rank], gathered if rank == root else None, dst=root)
        if rank == root:
            check_equal(torch.stack(gathered), torch.stack(each))

        mine = blank.clone()
        dist.scatter(mine, each if rank == root else None, src=root)
        check_equal(mine, each[rank])

    received = [blank.clone() for _ in range(size)]
    dist.all_to_all(received, [each[rank].clone() for _ in range(size)])
    check_equal(torch.stack(received), torch.stack(each))


def check_sums(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Check collectives that add."""
    rank, size = dist.get_rank(), dist.get_world_size()
    each = [tensor_of(r, shape, dtype) for r in range(size)]
    total = torch.stack(each).sum(0).to(dtype)

    value = each[rank].clone()
    dist.all_reduce(value)
    check_equal(value, total)

    for root in range(size):
        value = each[rank].clone()
        dist.reduce(value, dst=root)
        if rank == root:
            check_equal(value, total)

    output = torch.zeros(shape, dtype=dtype)
    dist.reduce_scatter(output, [each[rank] for _ in range(size)])
    check_equal(output, total)


def check_single_tensor_forms(dtype: torch.dtype) -> None:
    """Check the forms in which one tensor holds the parts of all ranks."""
    rank, size = dist.get_rank(), dist.get_world_size()
    each = [tensor_of(r, (size * 3, 2), dtype) for r in range(size)]
    stacked = torch.stack(each)

    gathered = torch.zeros(size * size * 3, 2, dtype=dtype)
    dist.all_gather_into_tensor(gathered, each[rank])
    check_equal(gathered, stacked.flatten(0, 1))

    output = torch.zeros(3, 2, dtype=dtype)
    dist.reduce_scatter_tensor(output, each[rank])
    check_equal(output, stacked.sum(0).to(dtype)[rank * 3 : rank * 3 + 3])

    received = torch.zeros(size * 3, 2, dtype=dtype)
    dist.all_to_all_single(received, each[rank])
    check_equal(received, stacked[:, rank * 3 : rank * 3 + 3].flatten(0, 1))


def check_operators() -> None:
    """Check every reduction with all dtypes that it is defined for."""
    rank, size = dist.get_rank(), dist.get_world_size()
    cases: list[tuple[object, torch.dtype, Callable[[torch.Tensor], torch.Tensor]]] = [
        (dist.ReduceOp.MIN, torch.float32, lambda each: each.amin(0)),
        (dist.ReduceOp.MAX, torch.int64, lambda each: each.amax(0)),
        (dist.ReduceOp.PRODUCT, torch.float64, lambda each: each.prod(0)),
        (dist.ReduceOp.BAND, torch.int32, lambda each: fold(torch.bitwise_and, each)),
        (dist.ReduceOp.BOR, torch.int32, lambda each: fold(torch.bitwise_or, each)),
        (dist.ReduceOp.BXOR, torch.int64, lambda each: fold(torch.bitwise_xor, each)),
    ]
    if dist.get_backend() != "gloo":
        cases.append((dist.ReduceOp.AVG, torch.float32, lambda each: each.mean(0)))
    for operator, dtype, reference in cases:
        each = torch.stack([tensor_of(r, (4, 25), dtype) for r in range(size)])
        value = each[rank].clone()
        dist.all_reduce(value, op=operator)
        torch.testing.assert_close(value, reference(each))


def fold(
    operator: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], each: torch.Tensor
) -> torch.Tensor:
    result = each[0]
    for value in each[1:]:
        result = operator(result, value)
    return result


def check_strides() -> None:
    """Check tensors that are not contiguous, as input and as output."""
    if dist.get_backend() == "gloo":
        return
    rank, size = dist.get_rank(), dist.get_world_size()
    each = [tensor_of(r, (6, 4), torch.float32) for r in range(size)]
    total = torch.stack(each).sum(0)

    transposed = each[rank].clone().t()
    dist.all_reduce(transposed)
    check_equal(transposed, total.t())

    wide = torch.zeros(6, 8)
    wide[:, ::2] = each[rank]
    dist.all_reduce(wide[:, ::2])
    check_equal(wide[:, ::2], total)
    check_equal(wide[:, 1::2], torch.zeros(6, 4))

    value = each[rank].clone().t()
    dist.broadcast(value, src=0)
    check_equal(value, each[0].t())

    gathered = [torch.zeros(6, 4).t() for _ in range(size)]
    dist.all_gather(gathered, each[rank].t())
    for found, wanted in zip(gathered, each, strict=True):
        check_equal(found, wanted.t())


def check_lazy_negatives() -> None:
    """Check negatives that PyTorch has not computed yet, as input and as output."""
    if dist.get_backend() == "gloo":
        return
    rank, size = dist.get_rank(), dist.get_world_size()
    negative = torch.tensor(complex(1, rank + 1)).conj().imag
    assert negative.is_neg()
    assert negative.is_contiguous()
    dist.all_reduce(negative, op=dist.ReduceOp.MAX)
    check_equal(negative, torch.tensor(-1.0))

    sent = [torch._neg_view(row) for row in torch.full((size, 3), rank + 1.0)]
    received = [torch._neg_view(row) for row in torch.zeros(size, 3)]
    dist.all_to_all(received, sent)
    for peer, value in enumerate(received):
        check_equal(value, torch.full((3,), -peer - 1.0))
    plain = list(torch.zeros(size, 3))
    dist.all_to_all(plain, sent)
    check_equal(plain[0], torch.full((3,), -1.0))


def check_point_to_point() -> None:
    """Check a ring of sends, tags out of order, and receives from any rank."""
    rank, size = dist.get_rank(), dist.get_world_size()
    following, previous = (rank + 1) % size, (rank - 1) % size
    first, second = torch.empty(1000), torch.empty(7, dtype=torch.int64)
    works = [
        dist.irecv(second, previous, tag=2),
        dist.irecv(first, previous, tag=1),
        dist.isend(torch.full((1000,), float(rank)), following, tag=1),
        dist.isend(torch.full((7,), rank), following, tag=2),
    ]
    for work in works:
        work.wait()
    check_equal(first, torch.full((1000,), float(previous)))
    check_equal(second, torch.full((7,), previous))
    if rank != 0:
        dist.send(torch.tensor([rank]), 0)
        return
    senders = set()
    for _ in range(size - 1):
        value = torch.empty(1, dtype=torch.int64)
        sender = dist.recv(value)
        assert value.item() == sender
        senders.add(sender)
    assert senders == set(range(1, size))


def check_uneven() -> None:
    """Check parts of different sizes, in lists and in one tensor."""
    rank, size = dist.get_rank(), dist.get_world_size()
    sent = [torch.full((peer + 1, 2), float(rank)) for peer in range(size)]
    received = [torch.empty(rank + 1, 2) for _ in range(size)]
    dist.all_to_all(received, sent)
    for peer, value in enumerate(received):
        check_equal(value, torch.full((rank + 1, 2), float(peer)))
    output = torch.empty(size * (rank + 1), 2)
    splits = [peer + 1 for peer in range(size)]
    dist.all_to_all_single(output, torch.cat(sent), [rank + 1] * size, splits)
    check_equal(output, torch.cat(received))


def check_pieces() -> None:
    """Check exchanges by messages, as tensors of a GPU use them, in pieces of three elements."""
    from slipstream.torch.collectives import exchange_by_messages
    from slipstream.torch.process_group import own_group

    rank, size = dist.get_rank(), dist.get_world_size()
    group = own_group(dist.group.WORLD)._group
    sent = [torch.arange(5 * peer, dtype=torch.float64) + rank for peer in range(size)]
    received = [torch.empty(5 * rank, dtype=torch.float64) for _ in range(size)]
    handles = exchange_by_messages(
        group, sent, received, {"timeout": 60.0, "waits_soon": False}, piece_bytes=24
    )
    for handle in handles:
        handle.wait()
    for peer, value in enumerate(received):
        check_equal(value, torch.arange(5 * rank, dtype=torch.float64) + peer)


def main() -> None:
    dist.init_process_group(os.environ.get("BACKEND", "slipstream"))
    for dtype in DTYPES:
        if supported(dtype):
            for shape in SHAPES:
                check_moves(shape, dtype)
                check_sums(shape, dtype)
            check_single_tensor_forms(dtype)
    check_operators()
    check_strides()
    check_lazy_negatives()
    check_point_to_point()
    check_uneven()
    if dist.get_backend() == "slipstream":
        check_pieces()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
