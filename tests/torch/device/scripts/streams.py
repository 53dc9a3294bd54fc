"""Who waits for whom: streams, futures, and memory that is freed right after a call."""

import gc
import random
import time
from typing import Any

import ranks
import teststream
import torch
import torch.distributed as dist

COUNT = 200_000
BUSY_SECONDS = 0.3


def total(size: int, shift: int = 0) -> float:
    """Return the sum of what all ranks contribute."""
    return float(sum(rank + shift for rank in range(size)))


def check_only_the_waiting_stream_waits(rank: int, size: int) -> None:
    """A stream that waits gets the results; the CPU and the default stream go on at once."""
    tensor = torch.full((COUNT,), float(rank), device=ranks.DEVICE)
    dist.barrier()
    teststream.synchronize()
    begin = time.monotonic()
    with teststream.Stream():
        teststream.current_stream().wait_stream(teststream.default_stream())
        teststream.sleep(BUSY_SECONDS)
        work = dist.all_reduce(tensor, async_op=True)
    waiting = teststream.Stream()
    with waiting:
        work.wait()
        result = tensor + 0
    enqueued = time.monotonic() - begin
    other = torch.ones(10, device=ranks.DEVICE).sum().item()  # on the default stream
    waited = time.monotonic() - begin
    with waiting:
        assert other == 10
        assert result.eq(total(size)).all().item()
    assert enqueued < BUSY_SECONDS, "wait() has blocked the CPU"
    assert waited < BUSY_SECONDS, "the default stream waited, although only another one should"
    assert time.monotonic() - begin >= BUSY_SECONDS


def check_futures_of_many(rank: int, size: int) -> None:
    """Ten futures are waited for on a new stream, as in PyTorch's issue 170812."""
    tensors = [torch.full((COUNT,), float(rank + each), device=ranks.DEVICE) for each in range(10)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    with teststream.Stream(priority=-1):
        for each, work in enumerate(works):
            (result,) = work.get_future().wait()
            assert result.sum().item() == COUNT * total(size, each), each


def check_callbacks(rank: int, size: int) -> None:
    """A callback reads the results on its stream, and what it computes can be waited for."""
    tensors = [torch.full((COUNT,), float(rank + each), device=ranks.DEVICE) for each in range(4)]

    def half(future: Any) -> torch.Tensor:
        ranks.keep_busy()
        return future.value()[0] / 2

    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    halves = [work.get_future().then(half) for work in works]
    for each, future in enumerate(halves):
        assert future.wait().eq(total(size, each) / 2).all().item(), each


def check_freed_memory(rank: int, size: int) -> None:
    """The allocator may not reuse memory that a collective still needs."""
    for turn in range(20):
        ranks.keep_busy()
        outputs = [torch.empty(size * COUNT, device=ranks.DEVICE) for _ in range(2)]
        works = []
        for output in outputs:
            source = torch.full((COUNT,), float(rank + turn), device=ranks.DEVICE)
            works.append(dist.all_gather_into_tensor(output, source, async_op=True))
            del source
            gc.collect()
            torch.full((COUNT,), -1.0, device=ranks.DEVICE)  # takes the memory if it is free
        with teststream.Stream():
            for work, output in zip(works, outputs, strict=True):
                work.wait()
                for each, part in enumerate(output.chunk(size)):
                    assert part.eq(each + turn).all().item(), (turn, each)
        teststream.synchronize()


def check_memory_after_a_wait(rank: int, size: int) -> None:
    """A stream has waited, so the work is dropped; but the source may still be read."""
    waiting = teststream.Stream()
    for turn in range(20):
        output = torch.empty(size * COUNT, device=ranks.DEVICE)
        source = torch.full((COUNT,), float(rank + turn), device=ranks.DEVICE)
        work = dist.all_gather_into_tensor(output, source, async_op=True)
        with waiting:
            work.wait()
        del work, source
        torch.full((COUNT,), -1.0, device=ranks.DEVICE)
        with waiting:
            for each, part in enumerate(output.chunk(size)):
                assert part.eq(each + turn).all().item(), (turn, each)
        teststream.synchronize()


def check_dropped_works(rank: int, size: int) -> None:
    """Works and tensors are dropped at once; the collectives still take place, in order."""
    for turn in range(10):
        dist.all_reduce(torch.full((COUNT,), float(turn), device=ranks.DEVICE), async_op=True)
        torch.full((COUNT,), -1.0, device=ranks.DEVICE)
        tensor = torch.full((3,), float(rank + turn), device=ranks.DEVICE)
        dist.all_reduce(tensor)
        assert tensor.eq(total(size, turn)).all().item()


def check_many_streams(rank: int, size: int) -> None:
    """Collectives are called on one stream, and awaited on others, in any order."""
    streams = [teststream.Stream() for _ in range(4)]
    called = []
    for turn in range(24):
        with streams[turn % 3]:
            ranks.keep_busy()
            tensor = torch.full((1000 + turn,), float(rank + turn), device=ranks.DEVICE)
            called.append((turn, tensor, dist.all_reduce(tensor, async_op=True)))
    random.shuffle(called)
    for turn, tensor, work in called:
        with streams[random.randrange(4)]:
            work.wait()
            ranks.keep_busy()
            tensor.record_stream(teststream.current_stream())
            assert tensor.eq(total(size, turn)).all().item(), turn


def main() -> None:
    """Run all checks."""
    rank, size = ranks.start()
    check_only_the_waiting_stream_waits(rank, size)
    check_futures_of_many(rank, size)
    check_callbacks(rank, size)
    check_freed_memory(rank, size)
    check_memory_after_a_wait(rank, size)
    check_dropped_works(rank, size)
    check_many_streams(rank, size)
    ranks.finish()


if __name__ == "__main__":
    main()
