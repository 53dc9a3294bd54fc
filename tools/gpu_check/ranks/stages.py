"""Checks of reductions in stages: averages that the GPU encodes, and the hierarchy of hosts.

The ranks run on one machine, and may share a GPU. Slipstream treats each two ranks as a host
("hierarchy") or each rank ("encoded"). NCCL refuses ranks that share a GPU, so a group of
Slipstream takes its place within the hosts, unless there is a GPU for each rank.

torchrun --nproc-per-node 4 stages.py hierarchy     (or encoded)
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from slipstream.torch.cuda.kinds import KINDS

LOCAL = 2
SIZES = (20_000, 33_331, 6_000_001)  # float32 values: enough for stages, of which two are padded
# Largest errors of an average of values between -8 and 8: twice the codec's, for two roundings.
ERRORS = {"fp16": 0.02, "bf16": 0.13, "int8": 0.26}
STEPS = 200


class SlipstreamGroup:
    """The ranks of a host, in NCCL's place.

    Args:
        group: Process group of these ranks.
    """

    def __init__(self, group: Any) -> None:
        self.group = group
        self.calls = 0

    def reduce_scatter(self, output: torch.Tensor, source: torch.Tensor, op: Any) -> Any:
        """Reduce the source over all ranks, and fill the output with this rank's part."""
        self.calls += 1
        return dist.reduce_scatter_tensor(output, source, op.op, group=self.group, async_op=True)

    def all_gather(self, output: torch.Tensor, source: torch.Tensor) -> Any:
        """Fill the output with the sources of all ranks, in their order."""
        self.calls += 1
        return dist.all_gather_into_tensor(output, source, group=self.group, async_op=True)

    def close(self) -> None:
        """Do nothing, because the end of the default group ends this one as well."""

    def abort(self) -> None:
        """Abort the group."""
        self.group.abort()


def replace_nccl(rank: int, size: int) -> list[SlipstreamGroup]:
    """Let groups of Slipstream take NCCL's place; return those of this rank's host."""
    own: list[SlipstreamGroup] = []
    for first in range(0, size, LOCAL):
        for _ in ("scatter", "gather"):
            group = dist.new_group(list(range(first, first + LOCAL)))
            if first <= rank < first + LOCAL:
                own.append(SlipstreamGroup(group))
    waiting = iter(own)
    KINDS["cuda"] = KINDS["cuda"]._replace(
        identity=lambda _: f"rank {rank}".encode(),
        local_name="Slipstream",
        connect=lambda *_: next(waiting),
    )
    return own


def values(count: int, rank: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return whole numbers from -8 to 8, whose sums are exact in every dtype."""
    return ((torch.arange(count, device="cuda") * 7 + rank) % 17 - 8).to(dtype)


def check_exact(rank: int, size: int) -> None:
    """Compare sums, averages and maxima with those that each rank computes alone."""
    for count in SIZES:
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            everybody = torch.stack([values(count, each, dtype) for each in range(size)])
            results = {dist.ReduceOp.SUM: everybody.sum(0), dist.ReduceOp.MAX: everybody.amax(0)}
            if dtype.is_floating_point:
                results[dist.ReduceOp.AVG] = everybody.float().mean(0)
            for op, expected in results.items():
                tensor = values(count, rank, dtype)
                dist.all_reduce(tensor, op)
                assert torch.equal(tensor, expected.to(dtype)), (op, dtype, count)


def check_encoded(rank: int, size: int) -> None:
    """Compare encoded averages with exact ones; all ranks must have the same bits."""
    group: Any = dist.group.WORLD
    for codec, largest in ERRORS.items():
        for count in SIZES:
            tensor = values(count, rank)
            losses = torch.zeros(count, device=group.losses_on(tensor))
            group.average_encoded(tensor, codec, losses).wait()
            expected = sum(values(count, each) for each in range(size)) / size
            assert (tensor - expected).abs().max().item() <= largest, (codec, count)
            others = [torch.empty_like(tensor) for _ in range(size)]
            dist.all_gather(others, tensor)
            assert all(torch.equal(other, tensor) for other in others), (codec, count)


def check_streams(rank: int, size: int) -> None:
    """Begin reductions on two streams, free their tensors, and wait in another order."""
    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    group: Any = dist.group.WORLD
    begun: list[tuple[torch.Tensor, Any, float]] = []
    for number in range(20):
        with torch.cuda.stream(streams[number % 2]):
            tensor = torch.full((300_001,), float(rank + number), device="cuda")
            if number % 3:
                work = group.average_encoded(tensor, "bf16")
            else:
                work = dist.all_reduce(tensor, dist.ReduceOp.AVG, async_op=True)
            begun.append((tensor, work, number + (size - 1) / 2))
            torch.ones(300_001, device="cuda").mul_(3)  # would use memory that is free too early
    for tensor, work, mean in reversed(begun):
        work.wait()
        assert tensor.eq(mean).all().item(), mean


def check_memory(rank: int, size: int) -> dict[str, float]:
    """Return the milliseconds of a step of two averages, after a check that no memory is lost."""
    group: Any = dist.group.WORLD
    tensor = torch.full((1_000_001,), float(rank), device="cuda")
    losses = torch.zeros(1_000_001, device=group.losses_on(tensor))
    before = begin = 0.0
    for step in range(STEPS):
        if step == STEPS // 4:
            torch.cuda.synchronize()
            before, begin = torch.cuda.memory_reserved(), time.perf_counter()
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        group.average_encoded(tensor, "int8", losses).wait()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    assert torch.cuda.memory_reserved() <= before + (8 << 20), before
    return {"two_averages_of_4_mb_ms": round(seconds / (STEPS * 3 // 4) * 1e3, 2)}


CHECKS: tuple[Callable[[int, int], dict[str, float] | None], ...] = (
    *(check_exact, check_encoded, check_streams, check_memory),
)


def main() -> None:
    """Run all checks, with the time of each."""
    is_hierarchy = sys.argv[1] == "hierarchy"
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ["SLIPSTREAM_HOST_ID"] = str(rank // LOCAL if is_hierarchy else rank)
    num_gpus = torch.cuda.device_count()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % num_gpus)
    dist.init_process_group("slipstream")
    local = replace_nccl(rank, size) if is_hierarchy and num_gpus < size else []
    for check in CHECKS:
        begin = time.monotonic()
        row = check(rank, size) or {}
        torch.cuda.synchronize()
        row |= {"holds": True, "seconds": round(time.monotonic() - begin, 2)}
        if rank == 0:
            print(json.dumps({"ranks": size, "way": sys.argv[1], "check": check.__name__, **row}))
    assert all(group.calls for group in local), "nothing was reduced in stages"
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
