"""Checks of collectives, streams, futures, DDP and FSDP2 on CUDA tensors; ranks may share a GPU.

torchrun --nproc-per-node 2 results.py
"""

import copy
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import slipstream.torch  # noqa: F401  registers the backend where it is not installed

SIZES = (1, 1000, 300_001, 6_000_000)
DTYPES = (torch.float32, torch.bfloat16, torch.int64)


def numbers(count: int, rank: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return small whole numbers, whose sums are exact in every dtype."""
    return ((torch.arange(count, device="cuda") + rank) % 13).to(dtype)


def check_reductions(rank: int, size: int) -> None:
    """Compare allreduce, reduce and reduce_scatter with sums of all ranks' numbers."""
    for dtype in DTYPES:
        for count in SIZES:
            total = sum(numbers(count, each, torch.float32) for each in range(size)).to(dtype)
            tensor = numbers(count, rank, dtype)
            dist.all_reduce(tensor)
            assert torch.equal(tensor, total), (dtype, count)
            tensor = numbers(count, rank, dtype)
            dist.reduce(tensor, dst=size - 1)
            assert rank != size - 1 or torch.equal(tensor, total)
            parts = torch.cat([numbers(count, rank + each, dtype) for each in range(size)])
            out = torch.empty(count, dtype=dtype, device="cuda")
            dist.reduce_scatter_tensor(out, parts)
            expected = sum(numbers(count, rank + each, torch.float32) for each in range(size))
            assert torch.equal(out, expected.to(dtype))


def check_copies(rank: int, size: int) -> None:
    """Check collectives without a reduction, and messages, for tensors of a GPU.

    Also check allreduce of a CPU tensor, and of a GPU tensor that is not contiguous.
    """
    for count in SIZES:
        tensor = numbers(count, rank)
        dist.broadcast(tensor, src=size - 1)
        assert torch.equal(tensor, numbers(count, size - 1))
        whole = torch.empty(size * count, device="cuda")
        dist.all_gather_into_tensor(whole, numbers(count, rank))
        assert torch.equal(whole, torch.cat([numbers(count, each) for each in range(size)]))
        apart = [torch.empty(count + each, device="cuda") for each in range(size)]
        dist.all_gather(apart, numbers(count + rank, rank))
        for each, part in enumerate(apart):
            assert torch.equal(part, numbers(count + each, each))
        parts = [torch.empty(count, device="cuda") for _ in range(size)] if rank == 0 else None
        dist.gather(numbers(count, rank), parts, dst=0)
        assert rank or all(torch.equal(p, numbers(count, i)) for i, p in enumerate(parts))
        given = [numbers(count, each) for each in range(size)] if rank == 0 else None
        out = torch.empty(count, device="cuda")
        dist.scatter(out, given, src=0)
        assert torch.equal(out, numbers(count, rank))
        out = torch.empty(size * count, device="cuda")
        dist.all_to_all_single(out, torch.cat([numbers(count, rank + 7 * i) for i in range(size)]))
        assert torch.equal(out, torch.cat([numbers(count, i + 7 * rank) for i in range(size)])), (
            count
        )
        received = [torch.empty(count + i + rank, device="cuda") for i in range(size)]
        dist.all_to_all(received, [numbers(count + i + rank, rank) for i in range(size)])
        for each, part in enumerate(received):
            assert torch.equal(part, numbers(count + each + rank, each))
        peer = rank ^ 1
        if peer < size:
            out = torch.empty(count, device="cuda")
            send, receive = dist.isend(numbers(count, rank), peer), dist.irecv(out, peer)
            send.wait()
            receive.wait()
            assert torch.equal(out, numbers(count, peer))
    objects: list[object] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": each} for each in range(size)]
    on_cpu = torch.ones(1000)
    dist.all_reduce(on_cpu)
    assert torch.equal(on_cpu, torch.full((1000,), float(size)))
    strided = numbers(999, rank).reshape(27, 37).t()
    dist.all_reduce(strided)
    assert torch.equal(strided, sum(numbers(999, each).reshape(27, 37).t() for each in range(size)))


def check_streams(rank: int, size: int) -> None:
    """Check futures on a new stream of high priority, as in PyTorch's issue 170812."""
    tensors = [torch.full((2_000_000,), float(rank + i), device="cuda") for i in range(10)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    with torch.cuda.stream(torch.cuda.Stream(priority=-1)):
        sums = [work.get_future().then(lambda f: f.value()[0].sum()).wait() for work in works]
        sums = [value.item() for value in sums]
    expected = [2_000_000.0 * sum(each + i for each in range(size)) for i in range(10)]
    assert sums == expected, (sums, expected)


def check_wait_does_not_block(rank: int) -> float:
    """Return how long `wait` of an allreduce takes while the last rank arrives 0.3 s late."""
    tensor = torch.ones(1_000_000, device="cuda")
    torch.cuda.synchronize()
    dist.barrier()
    if rank == dist.get_world_size() - 1:
        time.sleep(0.3)
    work = dist.all_reduce(tensor, async_op=True)
    begin = time.perf_counter()
    work.wait()
    seconds = time.perf_counter() - begin
    total = tensor.sum().item()
    assert total == 1e6 * dist.get_world_size()
    return seconds


def check_training(rank: int, size: int) -> None:
    """Compare DDP's and FSDP2's parameters with those of training in one process."""
    from torch.distributed.fsdp import fully_shard

    def net() -> nn.Module:
        torch.manual_seed(3)
        layers = [nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU()]
        return nn.Sequential(*layers, nn.Linear(1024, 8)).cuda()

    def train(model: nn.Module, batches: list[torch.Tensor]) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for batch in batches:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()

    torch.manual_seed(11)
    batches = list(torch.randn(8, size, 16, 256, device="cuda"))
    reference = net()
    train(reference, [batch.flatten(0, 1) for batch in batches])
    own = [batch[rank] for batch in batches]
    model = DistributedDataParallel(net(), bucket_cap_mb=1)
    train(model, own)
    for ours, other in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-3, atol=1e-4)
    sharded = copy.deepcopy(net())
    for layer in sharded:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(sharded)
    train(sharded, own)
    for ours, other in zip(sharded.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.full_tensor(), other, rtol=1e-3, atol=1e-4)


def main() -> None:
    """Run all checks, with the time of each."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.backends.cuda.matmul.allow_tf32 = False
    dist.init_process_group("slipstream")
    rank, size = dist.get_rank(), dist.get_world_size()
    for name, check in (
        ("reductions", lambda: check_reductions(rank, size)),
        ("copies", lambda: check_copies(rank, size)),
        ("streams", lambda: check_streams(rank, size)),
        ("wait", lambda: check_wait_does_not_block(rank)),
        ("training", lambda: check_training(rank, size)),
    ):
        begin = time.monotonic()
        result = check()
        torch.cuda.synchronize()
        if rank == 0:
            row = {"check": name, "holds": True, "seconds": round(time.monotonic() - begin, 2)}
            if result is not None:
                row["wait_microseconds"] = round(result * 1e6)
            print(json.dumps({"ranks": size, **row}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
