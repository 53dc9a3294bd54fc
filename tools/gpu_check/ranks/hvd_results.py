"""Checks of Horovod's API on CUDA tensors against the same calls on tensors of the CPU.

torchrun --nproc-per-node 2 hvd_results.py collectives     (or training)

The tests run these checks without a GPU, on a device of PyTorch whose streams are threads.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

os.environ.setdefault("SLIPSTREAM_JOB_KEY", "a key for one machine")

import slipstream.horovod.torch as hvd

STEPS = 3
WIDTH = 128  # a weight of 64 KiB is encoded between hosts
WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
LARGE = 1_300_001  # elements, in two chunks


class Target(NamedTuple):
    """The device to check.

    Args:
        device: Device of the tensors.
        keep_busy: Function that gives the current stream some work and returns at once.
    """

    device: str
    keep_busy: Callable[[], None]

    @property
    def module(self) -> Any:
        return torch.get_device_module(self.device)


def numbers(shape: Any, shift: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return small whole numbers, whose sums and products are exact in every dtype."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) + shift) % 4 + 1).to(dtype).view(shape)


class Case(NamedTuple):
    """A call of Horovod's API.

    Args:
        name: Name for messages.
        tensors: Tensors of the CPU that the call takes.
        call: Function that takes these tensors or their copies on a device.
    """

    name: str
    tensors: list[torch.Tensor]
    call: Callable[[list[torch.Tensor]], Any]


def reductions(count: int, dtype: torch.dtype) -> Iterator[Case]:
    rank, size = hvd.rank(), hvd.size()
    own = [numbers((count,), rank, dtype)]
    for op in (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product):
        yield Case(f"allreduce {op.name}", own, lambda t, op=op: hvd.allreduce(t[0], op=op))
    if size & (size - 1) == 0 and dtype in REAL:
        yield Case("adasum", own, lambda t: hvd.allreduce(t[0], op=hvd.Adasum))
    factors = {"prescale_factor": 0.5, "postscale_factor": 3.0}
    yield Case("allreduce_", own, lambda t: hvd.allreduce_(t[0], op=hvd.Average, **factors))
    yield Case(
        "compressed",
        own,
        lambda t: hvd.allreduce(t[0], op=hvd.Sum, compression=hvd.Compression.fp16),
    )
    several = [numbers(shape, rank, dtype) for shape in ((count,), (3, 2), (), (0,), (17,))]
    yield Case("grouped_allreduce", several, lambda t: hvd.grouped_allreduce(t, op=hvd.Sum))
    yield Case("grouped_allreduce_", several, lambda t: hvd.grouped_allreduce_(t, **factors))
    rows = [numbers((size + 1, count), rank, dtype)]
    yield Case("reducescatter", rows, lambda t: hvd.reducescatter(t[0], op=hvd.Sum))
    two = [*rows, numbers((size,), rank, dtype)]
    yield Case("grouped_reducescatter", two, lambda t: hvd.grouped_reducescatter(t))


def exchanges(count: int, dtype: torch.dtype) -> Iterator[Case]:
    rank, size = hvd.rank(), hvd.size()
    own = numbers((count,), rank, dtype)
    uneven = numbers((rank + 1, count), rank, dtype)
    yield Case("broadcast", [own], lambda t: hvd.broadcast(t[0], size - 1))
    yield Case("broadcast_", [own], lambda t: hvd.broadcast_(t[0], 0))
    yield Case("allgather", [uneven], lambda t: hvd.allgather(t[0]))
    yield Case("grouped_allgather", [own, uneven], lambda t: hvd.grouped_allgather(t))
    blocks = numbers((size * 2, count), rank, dtype)
    yield Case("alltoall", [blocks], lambda t: hvd.alltoall(t[0]))
    splits = torch.tensor([(rank + other) % 3 for other in range(size)], dtype=torch.int32)
    given = numbers((int(splits.sum()), count), rank, dtype)
    yield Case("alltoall of rows", [given, splits], lambda t: hvd.alltoall(t[0], t[1]))


def cases() -> Iterator[Case]:
    for dtype in (*WHOLE, *REAL):
        yield from reductions(33, dtype)
    for dtype in (torch.int16, torch.float64):
        yield from exchanges(1, dtype)
    for kind in (reductions, exchanges):
        yield from kind(300_001, torch.float32)
    large = [numbers((LARGE,), hvd.rank())]
    yield Case("a large tensor", large, lambda t: hvd.allreduce(t[0], op=hvd.Sum))
    flags = [torch.tensor([True, False, hvd.rank() == 0])]
    yield Case("bool", flags, lambda t: hvd.allreduce(t[0], op=hvd.Sum))


def flattened(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def check_collectives(target: Target) -> None:
    """Compare every collective with the CPU's result, bit by bit, on two streams."""
    streams = [target.module.current_stream(), target.module.Stream()]
    for turn, case in enumerate(cases()):
        expected = flattened(case.call([tensor.clone() for tensor in case.tensors]))
        with target.module.stream(streams[turn % 2]):
            target.keep_busy()
            tensors = [tensor.to(target.device) for tensor in case.tensors]
            results = flattened(case.call(tensors))
            copies = [result + 0 if result.dtype != torch.bool else ~~result for result in results]
            for tensor in (*tensors, *results):
                tensor.zero_()  # after the reads of the collective, on the stream
            for copy, wanted in zip(copies, expected, strict=True):
                assert copy.dtype == wanted.dtype, case.name
                assert torch.equal(copy.cpu(), wanted), (case.name, wanted.dtype, copy, wanted)


def check_orders(target: Target) -> None:
    """Submit tensors of the device and of the CPU in another order on each rank."""
    size, order = hvd.size(), random.Random(hvd.rank())
    total = size * (size - 1) / 2
    for turn in range(4):
        names = [(number, number % 3 == 2) for number in range(30)]
        order.shuffle(names)
        handles = {}
        for number, is_on_cpu in names:
            if number % 7 == 0:
                target.keep_busy()
            count = 400_000 if number % 10 == 0 else 100 + number
            value = float(hvd.rank() + number + turn)
            tensor = torch.full((count,), value, device="cpu" if is_on_cpu else target.device)
            handles[number] = hvd.allreduce_async_(tensor, op=hvd.Sum, name=f"tensor {number}")
        order.shuffle(names)
        for number, _ in names:
            result = hvd.synchronize(handles[number])
            assert result.eq(total + size * (number + turn)).all().item(), (turn, number)


def check_streams(target: Target) -> None:
    """Check the order of streams: what is reduced, who waits, and memory that is freed early."""
    size, other = hvd.size(), target.module.Stream()
    total = size * (size - 1) / 2
    tensor = torch.zeros(LARGE, device=target.device)
    for turn in range(5):
        target.keep_busy()
        tensor.fill_(hvd.rank() + turn)  # the stream gets here long after the submission
        handle = hvd.allreduce_async(tensor, op=hvd.Sum, name="busy")
        kept = hvd.allreduce_async(
            torch.full((50_000,), float(hvd.rank()), device=target.device), op=hvd.Sum, name="freed"
        )
        hvd.allreduce_async(torch.full((50_000,), 2.0, device=target.device), name=f"no {turn}")
        torch.full((50_000,), -1.0, device=target.device)  # where the others were, if they are free
        copies = []
        for stream in (target.module.current_stream(), other):
            with target.module.stream(stream):
                copies.append(hvd.synchronize(handle) + 0)
        target.module.synchronize()
        for copy in copies:
            assert copy.eq(total + size * turn).all().item()
        assert hvd.synchronize(kept).eq(total).all().item()
        other.wait_stream(target.module.current_stream())
        polled = hvd.broadcast_async(tensor, 0, name="polled")
        while not hvd.poll(polled):
            time.sleep(1e-3)
        assert hvd.synchronize(polled).eq(float(turn)).all().item()
    hvd.barrier()


def check_overlap(target: Target) -> None:
    """Compute and reduce while another tensor waits for a rank that comes only afterwards."""
    last = hvd.size() - 1
    for turn in range(3):
        waiting = torch.full((LARGE,), float(turn), device=target.device)
        other = torch.full((1000,), float(turn), device=target.device)
        if hvd.rank() == last:
            hvd.broadcast(torch.zeros(1), 0, name="go")  # when rank 0 has done all of its steps
            handle = hvd.allreduce_async_(waiting, op=hvd.Sum, name="waiting")
        else:
            handle = hvd.allreduce_async_(waiting, op=hvd.Sum, name="waiting")
            target.keep_busy()
            assert (other + 1).eq(turn + 1).all().item()  # hangs if the stream waits
            assert not hvd.poll(handle)
            hvd.broadcast(torch.zeros(1), 0, name="go")
        assert hvd.synchronize(handle).eq(turn * hvd.size()).all().item()


def check_dropped_results(target: Target) -> None:
    """Drop a result that another stream has still to read, and begin the next collective."""
    reading = target.module.Stream()
    for turn in range(8):
        own = torch.full((50_000,), float(turn), device=target.device)
        handle = hvd.allgather_async(own, name="result")
        with target.module.stream(reading):
            result = hvd.synchronize(handle)
            for _ in range(4):
                target.keep_busy()
            copy = result + 0
        del result, handle
        hvd.allgather(own * 0 - 1, name="next")
        with target.module.stream(reading):
            assert copy.eq(float(turn)).all().item(), turn


def check_gradients(target: Target) -> None:
    """Compare gradients through the collectives with the CPU's."""

    def gradient(device: str) -> torch.Tensor:
        own = numbers((hvd.size() * 2, 3), hvd.rank()).to(device).requires_grad_()
        results = [
            hvd.allreduce(own, op=hvd.Sum),
            hvd.allgather(own),
            hvd.broadcast(own, 0),
            hvd.alltoall(own),
            hvd.reducescatter(own),
        ]
        sum(((each * each).sum() for each in results), torch.zeros((), device=device)).backward()
        return own.grad.cpu()

    assert torch.equal(gradient(target.device), gradient("cpu"))


def network() -> nn.Module:
    torch.manual_seed(5)
    layers = [nn.Linear(8, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2)]
    return nn.Sequential(*layers)


def losses(target: Target, device: str, passes: int = 1, **options: Any) -> list[float]:
    """Train on batches that differ between ranks; return the average losses."""
    model = network().to(device)
    if hvd.rank():
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(2)  # the broadcast sets it right
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    if isinstance(options.get("groups"), list):
        options["groups"] = [list(model[0].parameters()), [model[2].weight]]
    optimizer = hvd.DistributedOptimizer(
        optimizer, model.named_parameters(), backward_passes_per_step=passes, **options
    )
    hvd.broadcast_parameters(model.state_dict(), 0)
    generator = torch.Generator().manual_seed(hvd.rank())
    history = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        for _ in range(passes):
            batch = torch.randn(16, 8, generator=generator).to(device)
            if device != "cpu":
                target.keep_busy()
            loss = (model(batch) - batch[:, :2]).square().mean()
            loss.backward()
        optimizer.step()
        history.append(hvd.allreduce(loss.detach().cpu(), name="loss").item())
    return history


def check_training(target: Target) -> None:
    """Compare losses with those on the CPU, for each option of DistributedOptimizer."""
    exact: list[dict[str, Any]] = [
        {},
        {"passes": 2},
        {"groups": 2},
        {"groups": []},
        {"op": hvd.Sum},
        {"gradient_predivide_factor": 2.0},
    ]
    for options in exact:
        ours, wanted = (losses(target, device, **options) for device in (target.device, "cpu"))
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-5)
    check_codec(target, hvd.Compression.fp16, hvd.Average)
    check_codec(target, hvd.Compression.bf16, hvd.Sum)
    check_codec(target, hvd.Compression.int8, hvd.Average)
    check_codec(target, hvd.Compression.int8, hvd.Sum)


def check_codec(target: Target, compression: Any, op: Any) -> None:
    """Compare losses with those on the CPU, which rounds other blocks of gradients."""
    options = {"compression": compression, "op": op}
    ours, wanted = (losses(target, device, **options) for device in (target.device, "cpu"))
    torch.testing.assert_close(ours, wanted, rtol=0.02, atol=1e-3)


def check_adasum(target: Target) -> None:
    if hvd.size() & (hvd.size() - 1) == 0:
        ours, wanted = (losses(target, device, op=hvd.Adasum) for device in (target.device, "cpu"))
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-5)


def check_states(target: Target) -> None:
    """Check the broadcast of Adam's state, whose steps are on the CPU, and of objects."""
    model = network().to(target.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (1 + hvd.rank()))
    if hvd.rank() == 0:
        model(torch.ones(4, 8, device=target.device)).sum().backward()
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, 0)
    hvd.broadcast_parameters(model.named_parameters(), 0)
    assert optimizer.param_groups[0]["lr"] == 0.1
    state = optimizer.state[model[0].weight]
    assert state["exp_avg"].device == torch.device(target.device)
    assert hvd.allreduce(state["exp_avg"], op=hvd.Max).eq(state["exp_avg"]).all().item()
    assert state["step"].item() == 1
    assert hvd.broadcast_object({"rank": hvd.rank()}, 0) == {"rank": 0}


def check_batch_norm(target: Target) -> None:
    """Compare SyncBatchNorm, forward and backward, with the CPU's."""

    def run(device: str) -> list[torch.Tensor]:
        layer = hvd.SyncBatchNorm(3).to(device)
        batch = numbers((4 + hvd.rank(), 3, 5), 7 * hvd.rank()).to(device).requires_grad_()
        layer(batch).square().sum().backward()
        return [each.cpu() for each in (batch.grad, layer.running_var, layer.weight.grad)]

    for ours, wanted in zip(run(target.device), run("cpu"), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-5)


def check_join(target: Target) -> None:
    """Let rank 0 have less data than the others, and none at all in the last round."""
    for batches in (2, 0):
        for turn in range(batches + hvd.rank()):
            tensor = torch.full((1000,), 6.0, device=target.device)
            total = hvd.allreduce(tensor, op=hvd.Sum, name="batch")
            taking_part = sum(turn < batches + rank for rank in range(hvd.size()))
            assert total.eq(6.0 * taking_part).all().item()
        hvd.join()


def check_sets(target: Target) -> None:
    """Use two process sets at once, whose operations begin in different orders on some ranks."""
    size = hvd.size()
    sets = [hvd.add_process_set(list(range(size - 1))), hvd.add_process_set(list(range(1, size)))]
    mine = [one for one in sets if one.included()]
    for turn in range(6):
        random.Random(hvd.rank() + turn).shuffle(mine)
        handles = []
        for one in mine:
            target.keep_busy()
            tensor = torch.full((200_000,), float(hvd.rank()), device=target.device)
            handles.append(hvd.allreduce_async_(tensor, op=hvd.Sum, name="both", process_set=one))
        for one, handle in zip(mine, handles, strict=True):
            assert hvd.synchronize(handle).eq(float(sum(one.ranks))).all().item()
    for one in sets:
        hvd.remove_process_set(one)


def check_sparse(target: Target) -> None:
    """Compare the training of an embedding with sparse gradients; not every device has them."""

    def trained(device: str, **options: Any) -> torch.Tensor:
        torch.manual_seed(5)
        table = nn.Embedding(10, 4, sparse=True).to(device)
        optimizer = torch.optim.SGD(table.parameters(), lr=1.0)
        optimizer = hvd.DistributedOptimizer(optimizer, table.named_parameters(), **options)
        for step in range(STEPS):
            optimizer.zero_grad()
            table(torch.tensor([hvd.rank(), step], device=device)).square().sum().backward()
            optimizer.step()
        return table.weight.detach().cpu()

    for options in ({}, {"sparse_as_dense": True}):
        torch.testing.assert_close(trained(target.device, **options), trained("cpu", **options))


OF_COLLECTIVES = (
    check_collectives,
    check_orders,
    check_streams,
    check_overlap,
    check_dropped_results,
    check_gradients,
    check_join,
    check_sets,
)
OF_TRAINING = (check_training, check_adasum, check_states, check_batch_norm)
ON_GPU_ONLY = (check_sparse,)


def keep_gpu_busy() -> None:
    matrix = torch.ones(2048, 2048, device="cuda")
    for _ in range(random.randrange(8)):
        matrix = matrix @ matrix * 1e-4


def main() -> None:
    """Run the chosen checks on CUDA GPUs, with the time of each."""
    chosen = {"collectives": OF_COLLECTIVES, "training": (*OF_TRAINING, *ON_GPU_ONLY)}[sys.argv[1]]
    if sys.argv[1] == "training":  # codecs encode between hosts only
        os.environ["SLIPSTREAM_HOST_ID"] = os.environ["RANK"]
    torch.backends.cuda.matmul.allow_tf32 = False
    hvd.init(process_sets="dynamic")
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    target = Target(f"cuda:{torch.cuda.current_device()}", keep_gpu_busy)
    for check in chosen:
        begin = time.perf_counter()
        check(target)
        row = {"check": check.__name__, "seconds": round(time.perf_counter() - begin, 2)}
        if hvd.rank() == 0:
            print(json.dumps(row), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
