"""Reductions in stages: "ordered" takes NCCL's place within hosts, slipstream reduces between them.

Ranks 0 and 1 are on one host, ranks 2 and 3 (if there are four) on another, as far as slipstream
knows.
"""

import os
import threading
from datetime import timedelta
from typing import Any

import encoded
import ordered
import ranks
import teststream
import torch
import torch.distributed as dist
import training
from torch.distributed.distributed_c10d import AllgatherOptions

from slipstream.torch.cuda.kinds import KINDS

# 20,000 float32 values are enough for stages; odd numbers of values are padded.
SIZES = (9, 20_000, 33_331, 1_300_001)
LOCAL = 2


class Patient:
    """A group of gloo that waits for lost ranks until it is aborted, as NCCL's kernels do."""

    def __init__(self, gloo: Any) -> None:
        self.gloo = gloo
        self.aborted = threading.Event()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Patient:
            try:
                getattr(self.gloo, name)(*arguments).wait()
            except RuntimeError:
                self.aborted.wait()
            return self

        return call

    def wait(self) -> None:
        """Do nothing, because the call has waited."""


class Ordered:
    """The local group that NCCL would be."""

    def __init__(self, gloo: Any, rank: int, size: int) -> None:
        self.patient = Patient(gloo)
        self.group = ordered.OrderedGroup(self.patient, rank, size)
        self.calls = 0
        self.ends: list[str] = []

    def reduce_scatter(self, output: torch.Tensor, source: torch.Tensor, op: Any) -> Any:
        self.calls += 1
        options = dist.ReduceScatterOptions()
        options.reduceOp = op
        return self.group._run("_reduce_scatter_base", (output, source, options))

    def all_gather(self, output: torch.Tensor, source: torch.Tensor) -> Any:
        self.calls += 1
        return self.group._run("_allgather_base", (output, source, AllgatherOptions()))

    def close(self) -> None:
        self.ends.append("closed")

    def abort(self) -> None:
        self.ends.append("aborted")
        self.patient.aborted.set()


connected: list[Ordered] = []


def connect(store: Any, rank: int, size: int, device: Any, timeout: timedelta) -> Ordered:
    """Connect the ranks of a host."""
    assert size == LOCAL
    assert store.add("ranks", 1) <= size, "this part of the store has been used before"
    gloo = dist.ProcessGroupGloo(store, rank, size, timeout)
    connected.append(Ordered(gloo, rank, size))
    return connected[-1]


def num_calls() -> int:
    return sum(each.calls for each in connected)


def numbers(count: int, rank: int, dtype: torch.dtype) -> torch.Tensor:
    """Return small whole numbers, whose sums and means over two or four ranks are exact."""
    return (((torch.arange(count) + rank) % 5 + 1) * 4).to(dtype)


def check(op: Any, dtype: torch.dtype, count: int, rank: int, reference: Any) -> None:
    """Reduce a tensor, and compare with gloo on the CPU."""
    expected = numbers(count, rank, dtype)
    is_mean = op == dist.ReduceOp.AVG
    dist.all_reduce(expected, dist.ReduceOp.SUM if is_mean else op, group=reference)
    if is_mean:
        expected = expected / dist.get_world_size()
    before = num_calls()
    ranks.keep_busy()
    tensor = numbers(count, rank, dtype).to(ranks.DEVICE)
    work = dist.all_reduce(tensor, op, async_op=True)
    ranks.keep_busy()
    work.wait()
    result = (tensor + 0).cpu()
    assert torch.equal(result, expected), (op, dtype, count)
    is_staged = count * dtype.itemsize >= 64 << 10 and (dtype.is_floating_point or not is_mean)
    assert num_calls() - before == 2 * is_staged, (op, dtype, count)


def check_strided(rank: int) -> None:
    """Reduce a tensor with gaps in memory."""
    matrix = torch.zeros(200, 300, device=ranks.DEVICE)
    column = matrix.t()[:250]
    column.fill_(float(rank))
    dist.all_reduce(column)
    size = dist.get_world_size()
    assert matrix[:, :250].eq(size * (size - 1) / 2).all().item()
    assert matrix[:, 250:].eq(0).all().item()


def check_encoded(codec: str, count: int, rank: int, reference: Any) -> None:
    """Average with error feedback, and compare with a computation on the CPU, bit by bit."""
    group: Any = dist.group.WORLD
    generator = torch.Generator().manual_seed(rank)
    losses = torch.zeros(count, device=ranks.DEVICE)
    length = -(-count // LOCAL)
    share = slice(rank % LOCAL * length, min((rank % LOCAL + 1) * length, count))
    kept: list[Any] = [torch.zeros(count)[share] for _ in range(2)]
    for _ in range(3):
        values = torch.randn(count, generator=generator)
        first, second, third, fourth = encoded.gathered(values, reference)
        tensor = values.to(ranks.DEVICE)
        group.average_encoded(tensor, codec, losses).wait()
        sums = [(first + second)[share], (third + fourth)[share]]
        wanted = encoded.expected(codec, sums, kept) / LOCAL
        assert torch.equal(tensor.cpu()[share], wanted), (codec, count)
        assert torch.equal(losses.cpu()[share], kept[rank // LOCAL]), (codec, count)
        for other in encoded.gathered(tensor.cpu(), reference):
            assert torch.equal(other, tensor.cpu()), (codec, count)


def check_when_it_is_off(rank: int) -> None:
    """Ranks that share a device, and groups with a rank a host, reduce in one stage."""
    kind = KINDS[teststream.NAME]
    KINDS[teststream.NAME] = kind._replace(identity=lambda _: b"the same")
    sharing = dist.new_group()
    KINDS[teststream.NAME] = kind
    across = [dist.new_group([each, each + LOCAL]) for each in range(LOCAL)][rank % LOCAL]
    for group, identity in ((sharing, b"the same"), (across, str(rank).encode())):
        KINDS[teststream.NAME] = kind._replace(identity=lambda _, text=identity: text)
        before = num_calls()
        tensor = torch.ones(20_000, device=ranks.DEVICE)
        dist.all_reduce(tensor, group=group)
        assert tensor.eq(dist.get_world_size(group)).all().item()
        assert num_calls() == before
    KINDS[teststream.NAME] = kind


def main() -> None:
    """Run every case."""
    rank = int(os.environ["RANK"])
    os.environ["SLIPSTREAM_HOST_ID"] = f"host {rank // LOCAL}"
    _, size = ranks.start()
    KINDS[teststream.NAME] = KINDS[teststream.NAME]._replace(
        identity=lambda _: f"device of {rank}".encode(), local_name="ordered", connect=connect
    )
    reference = dist.new_group(backend="gloo")
    for count in SIZES:
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX):
            check(op, torch.float32, count, rank, reference)
    check(dist.ReduceOp.MIN, torch.int64, 33_331, rank, reference)
    check(dist.ReduceOp.SUM, torch.bfloat16, 40_001, rank, reference)
    check_strided(rank)
    if size > LOCAL:
        for codec in ("fp16", "int8"):
            check_encoded(codec, 40_001, rank, reference)
        check_when_it_is_off(rank)
    model = training.ddp(dist.new_group(backend="gloo"))(training.network())
    training.train(model, rank, "cpu")
    training.check("DDP", training.ddp(), model)
    ranks.finish()
    assert {end for each in connected for end in each.ends} == {"closed"}


if __name__ == "__main__":
    main()
