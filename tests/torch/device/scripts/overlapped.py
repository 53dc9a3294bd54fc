"""`slipstream.torch.overlap` of a model on the test device, compared with the same on the CPU."""

import copy
import os
from collections.abc import Callable, Iterator
from typing import Any

import ranks
import teststream
import torch
from torch import nn

import slipstream.torch

STEPS = 5

# What a training loop does after backward(), with the model, its optimizer and its device.
Step = Callable[[nn.Module, Any, str], None]


def network() -> nn.Module:
    """Return a small model with several buckets, the same on every rank."""
    torch.manual_seed(3)
    layers = [layer for _ in range(3) for layer in (nn.Linear(150, 150), nn.Tanh())]
    return nn.Sequential(nn.Linear(8, 150), *layers, nn.Linear(150, 3))


def forward(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Compute every other layer on a stream of its own, where its backward pass runs too."""
    if batch.is_cpu:
        return model(batch)
    main, side = teststream.current_stream(), teststream.Stream()
    for number, layer in enumerate(model):
        stream, other = (side, main) if number % 2 else (main, side)
        stream.wait_stream(other)
        with teststream.stream(stream):
            ranks.keep_busy()
            batch = layer(batch)
    main.wait_stream(side)
    return batch


def plain(model: nn.Module, optimizer: Any, device: str) -> None:
    """Make a step."""
    optimizer.step()


def clipped(model: nn.Module, optimizer: Any, device: str) -> None:
    """Read all gradients before the step."""
    nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    optimizer.step()


def on_another_stream(model: nn.Module, optimizer: Any, device: str) -> None:
    """Make the step on a stream of its own, and read a parameter first on yet another one."""
    if device == "cpu":
        optimizer.step()
        return
    stepping, reading = teststream.Stream(), teststream.Stream()
    stepping.wait_stream(teststream.current_stream())
    with teststream.stream(stepping):
        ranks.keep_busy()
        optimizer.step()
    reading.wait_stream(stepping)
    teststream.current_stream().wait_stream(stepping)
    with teststream.stream(reading):
        ranks.keep_busy()
        model[0].weight.sum()


def batches(rank: int) -> Iterator[torch.Tensor]:
    """Yield batches that differ between ranks."""
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(STEPS):
        yield torch.randn(4, 8, generator=generator)


def train(model: nn.Module, rank: int, device: str, step: Step, **options: Any) -> dict[str, Any]:
    """Train a model, and return the state of its overlap."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    overlap = slipstream.torch.overlap(model, optimizer, bucket_bytes=100_000, **options)
    for batch in batches(rank):
        optimizer.zero_grad()
        if device != "cpu":
            ranks.keep_busy()
        forward(model, batch.to(device)).square().mean().backward()
        step(model, optimizer, device)
    state = overlap.state_dict()
    overlap.remove()
    return state


def check(name: str, rank: int, step: Step, **options: Any) -> None:
    """Train on both devices, and compare the parameters bit by bit.

    With a codec they differ a little, because the device has other blocks.
    """
    expected, model = network(), copy.deepcopy(network()).to(ranks.DEVICE)
    wanted = train(expected, rank, "cpu", step, **options)
    state = train(model, rank, ranks.DEVICE, step, **options)
    tolerance = {} if "codec" in options else {"rtol": 0, "atol": 0}
    for ours, other in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(
            ours.detach().cpu(), other.detach(), msg=lambda text: f"{name}: {text}", **tolerance
        )
    assert set(state["residuals"]) == set(wanted["residuals"]), name
    kept = [losses.cpu() for losses in state["residuals"].values()]
    assert any(losses.any() for losses in kept) == ("codec" in options), name


def main() -> None:
    """Train in each way, over two hosts as far as codecs are concerned."""
    os.environ["SLIPSTREAM_HOST_ID"] = f"host-of-{os.environ['RANK']}"
    rank, _ = ranks.start()
    check("plain", rank, plain)
    check("synchronous", rank, plain, across_steps=False)
    check("clipped", rank, clipped)
    check("another stream", rank, on_another_stream)
    check("int8", rank, plain, codec="int8")
    check("fp16", rank, plain, codec="fp16", error_feedback=True)
    ranks.finish()


if __name__ == "__main__":
    main()
