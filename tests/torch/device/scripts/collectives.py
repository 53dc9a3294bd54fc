"""Every collective, on busy streams: tensors of the device get the results that CPU tensors get."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import ranks
import teststream
import torch
import torch.distributed as dist

SIZES = (  # elements; the last size takes two chunks
    (1, torch.int64),
    (1000, torch.bfloat16),
    (1_300_001, torch.float32),
)


class Case(NamedTuple):
    """A call of torch.distributed.

    Args:
        name: Name of the case, for messages.
        tensors: Tensors of the CPU, inputs and outputs.
        call: Function that calls the collective with tensors and options.
        is_defined: Whether this rank's results are defined.
    """

    name: str
    tensors: list[torch.Tensor]
    call: Callable[..., Any]
    is_defined: bool = True


def numbers(count: int, shift: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return small whole numbers, whose sums are exact in every dtype."""
    return ((torch.arange(count) + shift) % 13 + 1).to(dtype)


def reductions(rank: int, size: int, count: int, dtype: torch.dtype) -> Iterator[Case]:
    own, parts = numbers(count, rank, dtype), numbers(count * size, rank, dtype)
    empty = torch.zeros(count, dtype=dtype)
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
        yield Case(f"all_reduce {op}", [own], lambda t, **o: dist.all_reduce(t[0], **o))
    last = size - 1
    yield Case("reduce", [own], lambda t, **o: dist.reduce(t[0], last, **o), rank == last)
    yield Case(
        "reduce_scatter_tensor",
        [empty, parts],
        lambda t, **o: dist.reduce_scatter_tensor(t[0], t[1], **o),
    )
    yield Case(
        "reduce_scatter",
        [empty, *parts.clone().chunk(size)],
        lambda t, **o: dist.reduce_scatter(t[0], t[1:], **o),
    )


def gathers(rank: int, size: int, count: int, dtype: torch.dtype) -> Iterator[Case]:
    own = numbers(count, rank, dtype)
    whole = torch.zeros(size * count, dtype=dtype)
    apart = [torch.zeros(count, dtype=dtype) for _ in range(size)]
    yield Case("broadcast", [own], lambda t, **o: dist.broadcast(t[0], size - 1, **o))
    yield Case(
        "all_gather_into_tensor",
        [whole, own],
        lambda t, **o: dist.all_gather_into_tensor(t[0], t[1], **o),
    )
    yield Case("all_gather", [own, *apart], lambda t, **o: dist.all_gather(t[1:], t[0], **o))
    yield Case(
        "gather",
        [own, *apart],
        lambda t, **o: dist.gather(t[0], t[1:] if rank == 0 else None, dst=0, **o),
    )
    given = [numbers(count, each, dtype) for each in range(size)]
    yield Case(
        "scatter",
        [own, *given],
        lambda t, **o: dist.scatter(t[0], t[1:] if rank == 0 else None, src=0, **o),
    )


def exchanges(rank: int, size: int, count: int, dtype: torch.dtype) -> Iterator[Case]:
    rows = [count + each + rank for each in range(size)]
    yield Case(
        "all_to_all_single",
        [torch.zeros(size * count, dtype=dtype), numbers(size * count, rank, dtype)],
        lambda t, **o: dist.all_to_all_single(t[0], t[1], **o),
    )
    yield Case(
        "all_to_all_single of rows",
        [torch.zeros(sum(rows), dtype=dtype), numbers(sum(rows), rank, dtype)],
        lambda t, **o: dist.all_to_all_single(t[0], t[1], rows, rows, **o),
    )


def coalesced(rank: int, size: int, count: int, dtype: torch.dtype) -> Iterator[Case]:
    def call(tensors: list[torch.Tensor], group: Any = None, async_op: bool = False) -> Any:
        with dist._coalescing_manager(group, async_ops=async_op) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor, group=group)
        return manager if async_op else None

    yield Case("coalesced", [numbers(count, rank, dtype), numbers(7, rank, dtype)], call)


def check(case: Case, reference: Any, async_op: bool) -> None:
    """Compare a call on the device with the same call on the CPU, over gloo."""
    expected = [tensor.clone() for tensor in case.tensors]
    case.call(expected, group=reference)
    ranks.keep_busy()  # so a collective that does not wait for the stream reads wrong values
    tensors = [tensor.to(ranks.DEVICE) for tensor in case.tensors]
    work = case.call(tensors, async_op=async_op)
    ranks.keep_busy()
    if async_op:
        work.wait()
    results = [tensor + 0 for tensor in tensors]  # reads on the device, before the CPU waits
    for tensor, wanted in zip(results, expected, strict=True):
        assert not case.is_defined or torch.equal(tensor.cpu(), wanted), (case.name, async_op)


def main() -> None:
    """Run every case on the default stream and on another."""
    rank, size = ranks.start()
    reference = dist.new_group(backend="gloo")
    streams = [teststream.default_stream(), teststream.Stream(priority=-1)]
    turn = 0
    for count, dtype in SIZES:
        for kind in (reductions, gathers, exchanges, coalesced):
            for case in kind(rank, size, count, dtype):
                for async_op in (False, True):
                    turn += 1
                    with streams[turn % 3 % 2]:
                        check(case, reference, async_op)
    ranks.finish()


if __name__ == "__main__":
    main()
