"""Gradients that travel encoded: close to exact ones, and with error feedback nothing is lost.

torchrun --nproc-per-node 2 compress.py      (every rank plays a host of its own)
"""

import copy
import os
from collections.abc import Callable

os.environ["SLIPSTREAM_HOST_ID"] = f"host {os.environ['RANK']}"

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from slipstream.errors import UsageError
from slipstream.torch import compress, overlap

STEPS = 12
TOLERANCE = {"fp16": 2e-3, "bf16": 2e-2, "int8": 5e-2}


def net() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.Linear(256, 4))


def train(model: nn.Module, parameters: nn.Module) -> list[float]:
    """Train with the data of this rank; return the losses."""
    torch.manual_seed(dist.get_rank())
    optimizer = torch.optim.SGD(parameters.parameters(), lr=0.05, momentum=0.9)
    if parameters is model:
        overlap(model, optimizer, codec="int8", bucket_bytes=100_000)
    losses: list[float] = []
    for _ in range(STEPS):
        rows = torch.randn(16, 64)
        optimizer.zero_grad()
        loss = (model(rows) - rows[:, :4]).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def check_codec(codec: str) -> None:
    exact = DistributedDataParallel(net())
    encoded = DistributedDataParallel(net(), bucket_cap_mb=0.2)
    state = compress(encoded, codec)
    expected = train(exact, exact.module)
    losses = train(encoded, encoded.module)
    torch.testing.assert_close(losses, expected, rtol=TOLERANCE[codec], atol=1e-3)
    first = encoded.module[2].weight
    everybody = [torch.empty_like(first) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, first.detach())
    assert all(torch.equal(each, first) for each in everybody), codec
    assert not torch.equal(first, exact.module[2].weight), f"{codec} was not used"
    kept = state.state_dict()["residuals"]
    assert bool(kept) == (codec == "int8")
    if kept:
        assert float(kept["2.weight"].abs().max()) > 0
        check_checkpoint(kept)


def check_checkpoint(kept: dict[str, torch.Tensor]) -> None:
    """Check that losses move to a model with other buckets."""
    other = DistributedDataParallel(net(), bucket_cap_mb=25)
    state = compress(other, "int8")
    state.load_state_dict({"codec": "int8", "residuals": copy.deepcopy(kept)})
    loaded = state.state_dict()["residuals"]
    assert all(torch.equal(loaded[name], kept[name].reshape(-1)) for name in kept)
    wrong = {"codec": "int8", "residuals": {"2.weight": torch.zeros(3)}}
    assert "the parameter has 65536 elements" in refusal(lambda: state.load_state_dict(wrong))


def check_overlap() -> None:
    """Check that the codec gives the same kind of result with overlap()."""
    exact = DistributedDataParallel(net())
    model = net()
    expected = train(exact, exact.module)
    losses = train(model, model)
    torch.testing.assert_close(losses, expected, rtol=TOLERANCE["int8"], atol=1e-3)


def check_errors() -> None:
    model = DistributedDataParallel(net())
    assert "allowed: fp16, bf16, int8" in refusal(lambda: compress(model, "int4"))


def refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except UsageError as error:
        return str(error)
    raise AssertionError("it was accepted")


def main() -> None:
    dist.init_process_group("slipstream")
    for codec in TOLERANCE:
        check_codec(codec)
    check_overlap()
    check_errors()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
