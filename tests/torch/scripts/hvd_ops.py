"""Collectives of the Horovod API against what one process computes.

slipstream run -n 2 hvd_ops.py
"""

import itertools
import os

os.environ.setdefault("SLIPSTREAM_JOB_KEY", "a key for these tests")

import torch

import slipstream.horovod.torch as hvd

INTEGERS = [torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SHAPES = [(17,), (17, 3), (5, 4, 3), ()]


def values(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(100 + rank)
    return torch.randint(-9, 9, shape).to(dtype)


def everybody(shape: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    return [values(rank, shape, dtype) for rank in range(hvd.size())]


def check_allreduce() -> None:
    for dtype, shape in itertools.product([*INTEGERS, *FLOATS], SHAPES):
        all_values = torch.stack(everybody(shape, dtype)).double()
        mean = all_values.sum(0) / hvd.size()
        own = values(hvd.rank(), shape, dtype)
        expected = {
            hvd.Sum: all_values.sum(0),
            hvd.Average: mean.trunc() if dtype in INTEGERS else mean,
            hvd.Min: all_values.min(0).values,
            hvd.Max: all_values.max(0).values,
        }
        for op, result in expected.items():
            before = own.clone()
            reduced = hvd.allreduce(own, op=op)
            assert torch.equal(own, before), "allreduce changed its input"
            torch.testing.assert_close(reduced, result.to(dtype), rtol=0.02, atol=0.02)
            same = own.clone()
            assert hvd.allreduce_(same, op=op) is same
            assert torch.equal(same, reduced)


def check_factors() -> None:
    for dtype in (torch.int32, torch.float16, torch.float32):
        own = values(hvd.rank(), (9,), dtype)
        scaled = [each.double() * 2.5 for each in everybody((9,), dtype)]
        if dtype == torch.int32:
            scaled = [each.trunc() for each in scaled]
        expected = (torch.stack(scaled).sum(0) * 0.5).to(dtype)
        result = hvd.allreduce(own, op=hvd.Sum, prescale_factor=2.5, postscale_factor=0.5)
        torch.testing.assert_close(result, expected)
        # What the average leaves over counts in what it is multiplied by.
        whole = torch.stack(everybody((9,), dtype)).double().sum(0)
        result = hvd.allreduce(own, op=hvd.Average, postscale_factor=2.5)
        torch.testing.assert_close(result, (whole * (2.5 / hvd.size())).to(dtype))


def check_groups() -> None:
    shapes = [(3,), (700_000,), (2, 2)]
    own = [values(hvd.rank(), shape, torch.float32) for shape in shapes]
    expected = [torch.stack(everybody(shape, torch.float32)).sum(0) for shape in shapes]
    for result, wanted in zip(hvd.grouped_allreduce(own, op=hvd.Sum), expected, strict=True):
        assert torch.equal(result, wanted)
    hvd.grouped_allreduce_(own, op=hvd.Sum)
    for result, wanted in zip(own, expected, strict=True):
        assert torch.equal(result, wanted)
    mixed = [torch.ones(4), torch.ones(4, dtype=torch.int64), torch.ones(2)]
    for result in hvd.grouped_allreduce(mixed, op=hvd.Sum):
        assert (result == hvd.size()).all()


def check_orders() -> None:
    """Submit in a different order on every rank; small tensors are fused with others."""
    torch.manual_seed(hvd.rank())
    handles = {}
    for number in torch.randperm(60).tolist():
        shape = (1 + number * number * 100,)
        tensor = torch.full(shape, float(hvd.rank() + number))
        handles[number] = hvd.allreduce_async(tensor, name=f"tensor {number}", op=hvd.Sum)
    ranks = sum(range(hvd.size()))
    for number, handle in handles.items():
        result = hvd.synchronize(handle)
        assert hvd.poll(handle)
        assert (result == ranks + number * hvd.size()).all(), number


def check_gathers() -> None:
    for dtype, rest in itertools.product([torch.uint8, torch.bool, torch.float16], [(), (2, 3)]):
        parts = [torch.full((r + 1, *rest), r % 2).to(dtype) for r in range(hvd.size())]
        gathered = hvd.allgather(parts[hvd.rank()])
        assert torch.equal(gathered, torch.cat(parts)), (dtype, rest)
    some = hvd.grouped_allgather([torch.full((2,), 1.0 * hvd.rank()), torch.zeros(0, 3)])
    assert torch.equal(some[0], torch.arange(hvd.size()).repeat_interleave(2).float())
    assert some[1].shape == (0, 3)


def check_broadcasts() -> None:
    for root, dtype in itertools.product(range(hvd.size()), [torch.bool, torch.float32]):
        own = torch.full((4, 3), hvd.rank()).to(dtype)
        sent = hvd.broadcast(own, root)
        assert torch.equal(sent, torch.full((4, 3), root).to(dtype))
        assert hvd.broadcast_(own, root) is own
        assert torch.equal(own, sent)


def check_alltoall() -> None:
    size, rank = hvd.size(), hvd.rank()
    rows = torch.cat([torch.full((rank + 1, 2), float(to)) for to in range(size)])
    received, counts = hvd.alltoall(rows, torch.tensor([rank + 1] * size, dtype=torch.int32))
    assert counts.tolist() == [each + 1 for each in range(size)]
    assert counts.dtype == torch.int32
    assert received.shape == (sum(range(1, size + 1)), 2)
    assert (received == rank).all()
    equal = hvd.alltoall(torch.arange(size * 2).float())
    assert equal.tolist() == [rank * 2.0, rank * 2.0 + 1] * size


def check_reducescatter() -> None:
    for rows, op in itertools.product((hvd.size() * 2, hvd.size() + 1, 1), (hvd.Sum, hvd.Average)):
        whole = torch.stack(everybody((rows, 3), torch.float32)).sum(0)
        whole = whole / hvd.size() if op == hvd.Average else whole
        base, extra = divmod(rows, hvd.size())
        counts = [base + (each < extra) for each in range(hvd.size())]
        own = hvd.reducescatter(values(hvd.rank(), (rows, 3), torch.float32), op=op)
        torch.testing.assert_close(own, whole.split(counts)[hvd.rank()])
    pair = hvd.grouped_reducescatter(
        [torch.ones(hvd.size(), 2), torch.ones(hvd.size())], op=hvd.Sum
    )
    assert [each.tolist() for each in pair] == [[[hvd.size()] * 2], [hvd.size()]]


def check_adasum() -> None:
    """Orthogonal vectors are added, equal ones averaged."""
    own = torch.zeros(hvd.size())
    own[hvd.rank()] = 2.0
    assert torch.equal(hvd.allreduce(own, op=hvd.Adasum), torch.full((hvd.size(),), 2.0))
    torch.testing.assert_close(
        hvd.allreduce(torch.arange(5.0), op=hvd.Adasum), torch.arange(5.0), rtol=1e-6, atol=1e-6
    )


def check_gradients() -> None:
    size, rank = hvd.size(), hvd.rank()
    tensor = torch.ones(3, 2, requires_grad=True)
    hvd.allreduce(tensor, op=hvd.Sum).sum().backward()
    assert (tensor.grad == size).all()
    tensor.grad = None
    for each in hvd.grouped_allreduce([tensor, tensor * 2], op=hvd.Average):
        each.sum().backward(retain_graph=True)
    assert (tensor.grad == 3).all()
    tensor.grad = None
    weights = torch.arange(3.0 * size)[:, None].expand(-1, 2)
    (hvd.allgather(tensor) * weights).sum().backward()
    assert torch.equal(tensor.grad, weights[3 * rank : 3 * rank + 3])
    tensor.grad = None
    hvd.broadcast(tensor, 1).sum().backward()
    assert (tensor.grad == (1 if rank == 1 else 0)).all()
    rows = torch.ones(size, requires_grad=True)
    (hvd.alltoall(rows) * (rank + 1)).sum().backward()
    assert rows.grad.tolist() == [each + 1.0 for each in range(size)]
    rows.grad = None
    (hvd.reducescatter(rows, op=hvd.Sum) * (rank + 1)).sum().backward()
    assert rows.grad.tolist() == [size * (each + 1.0) for each in range(size)]


def main() -> None:
    hvd.init()
    hvd.init()
    assert (hvd.rank(), hvd.size()) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    assert hvd.local_size() == hvd.size()
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
    assert hvd.is_homogeneous()
    for check in (
        check_allreduce,
        check_factors,
        check_groups,
        check_orders,
        check_gathers,
        check_broadcasts,
        check_alltoall,
        check_reducescatter,
        check_adasum,
        check_gradients,
    ):
        check()
        hvd.barrier()
    hvd.shutdown()
    assert not hvd.is_initialized()
    hvd.init()
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2
    hvd.shutdown()


main()
