"""Averages that are encoded on the device, compared bit by bit with a computation on the CPU."""

import math
import os
from typing import Any

import pytest
import ranks
import teststream
import torch
import torch.distributed as dist

from slipstream.errors import UsageError
from slipstream.torch.cuda import codecs
from slipstream.torch.cuda.stages import later_stages

STEPS = 3
ALIGNED = 2048  # values; blocks of ranks are multiples of it
SIZES = (8191, 8192, 100_001)  # 8191 values are too few to be encoded
LARGE = 1_300_001  # values, which take several chunks


def gathered(tensor: torch.Tensor, reference: Any) -> list[torch.Tensor]:
    """Return the CPU tensors of all ranks."""
    everybody = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, tensor, group=reference)
    return everybody


def through_codec(codec: str, values: torch.Tensor, losses: torch.Tensor | None) -> torch.Tensor:
    """Encode and decode values on the CPU, with error feedback."""
    data = torch.empty(codecs.encoded_bytes(codec, values.numel()), dtype=torch.uint8)
    decoded = torch.empty_like(values)
    codecs.encode(codec, values, data, losses)
    codecs.decode(codec, data, decoded)
    return decoded


def expected(codec: str, values: list[torch.Tensor], losses: list[Any]) -> torch.Tensor:
    """Return the average of all ranks' values, and update all ranks' losses."""
    size, count = len(values), values[0].numel()
    length = math.ceil(math.ceil(count / size) / ALIGNED) * ALIGNED
    result = torch.empty(count)
    for owner in range(size):
        part = slice(owner * length, min((owner + 1) * length, count))
        if part.start >= count:
            break
        total = values[owner][part].clone()
        for rank in range(size):
            if rank != owner:
                own = None if losses[rank] is None else losses[rank][part]
                total += through_codec(codec, values[rank][part].clone(), own)
        left = None if losses[owner] is None else losses[owner][part] / size
        result[part] = through_codec(codec, total / size, left)
        if left is not None:
            losses[owner][part] = left * size
    return result


def check(codec: str, count: int, feedback: bool, rank: int, reference: Any) -> None:
    """Average some tensors one after another."""
    group: Any = dist.group.WORLD
    generator = torch.Generator().manual_seed(rank)
    losses = torch.zeros(count, device=ranks.DEVICE) if feedback else None
    wanted_losses: list[Any] = [
        torch.zeros(count) if feedback else None for _ in range(dist.get_world_size())
    ]
    for _ in range(STEPS):
        values = torch.randn(count, generator=generator)
        everybody = gathered(values, reference)
        ranks.keep_busy()
        tensor = values.to(ranks.DEVICE)
        work = group.average_encoded(tensor, codec, losses)
        del values
        ranks.keep_busy()
        work.wait()
        result = (tensor + 0).cpu()
        if count < 8192:
            wanted = torch.stack(everybody).double().mean(0).float()
            torch.testing.assert_close(result, wanted, rtol=1e-6, atol=1e-6)
            continue
        assert torch.equal(result, expected(codec, everybody, wanted_losses)), (codec, count)
        if losses is not None:
            assert torch.equal(losses.cpu(), wanted_losses[rank]), (codec, count)
            assert losses.cpu().any()


def check_many_at_once(rank: int, reference: Any) -> None:
    """Averages whose works nobody waits for until all have begun, on two streams."""
    group: Any = dist.group.WORLD
    streams = [teststream.current_stream(), teststream.Stream()]
    inputs = [torch.full((20_000,), float(rank + number)) for number in range(6)]
    begun = []
    for number, values in enumerate(inputs):
        with teststream.stream(streams[number % 2]):
            ranks.keep_busy()
            tensor = values.to(ranks.DEVICE)
            begun.append((tensor, group.average_encoded(tensor, "bf16")))
    for number, (tensor, work) in enumerate(begun):
        work.wait()
        mean = number + (dist.get_world_size() - 1) / 2
        assert torch.equal(tensor.cpu(), torch.full((20_000,), mean)), number


def check_left_early() -> None:
    """A group is aborted before anybody waits; the memory of its tensors is not used too early."""
    group: Any = dist.new_group()
    tensors = [torch.ones(100_000, device=ranks.DEVICE) for _ in range(8)]
    group.average_encoded(tensors[0], "int8").wait()
    for tensor in tensors:
        group.average_encoded(tensor, "int8")
    del tensors, tensor
    dist.barrier()
    group.abort()
    others = [torch.full((100_000,), 7.0, device=ranks.DEVICE) for _ in range(8)]
    teststream.synchronize()
    assert all(other.eq(7).all().item() for other in others)
    dist.destroy_process_group(group)


def check_error_in_a_stage() -> None:
    """After an exception in a stage, the current stream waits before it uses freed memory."""
    group: Any = dist.group.WORLD
    tensor = torch.ones(100_000, device=ranks.DEVICE)

    def fail() -> None:
        with later_stages(group._cuda, tensor.device, "sum"):
            teststream.sleep(0.1)
            tensor.fill_(5)
            raise ValueError("in the stage")

    with pytest.raises(ValueError, match="in the stage"):
        fail()
    assert tensor.eq(5).all().item()


def check_misuse() -> None:
    """A residual in the wrong place is refused, before anything is sent."""
    group: Any = dist.group.WORLD
    tensor = torch.ones(10_000, device=ranks.DEVICE)
    assert str(group.losses_on(tensor)) == ranks.DEVICE
    with pytest.raises(UsageError, match=f"elements of torch.float32 on {ranks.DEVICE}"):
        group.average_encoded(tensor, "int8", torch.zeros(10_000))


def main() -> None:
    """Run every case, with every rank on a host of its own."""
    os.environ["SLIPSTREAM_HOST_ID"] = f"host-of-{os.environ['RANK']}"
    rank, _ = ranks.start()
    reference = dist.new_group(backend="gloo")
    check_misuse()
    for codec in ("fp16", "bf16", "int8"):
        for count in SIZES:
            for feedback in (False, True):
                check(codec, count, feedback, rank, reference)
        check(codec, LARGE, True, rank, reference)
    check_many_at_once(rank, reference)
    check_left_early()
    check_error_in_a_stage()
    ranks.finish()


if __name__ == "__main__":
    main()
