"""Measures the host's time to issue the operators of a typical model.

The model is of convolutions, norms and blocks of a transformer, as users write them, and so narrow
that the device has next to nothing to do.
"""

# PyTorch's stubs leave some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from slipstream.forecast.trace import trace
from slipstream.forecast.trace.architectures.transformer import Decoder, TransformerSize
from slipstream.forecast.work.workload import TrainingPhase

_CHANNELS, _PIXELS, _SAMPLES = 8, 4, 2
_CONVOLUTIONS, _BLOCKS = 16, 6
_SIZE = TransformerSize(
    hidden=16, layers=_BLOCKS, heads=2, vocabulary=16, positions=8, dropout=0.0
)  # fmt: skip


class Timer(Protocol):
    """Times a kernel."""

    def __call__(self, kernel: Callable[[], object], *, waits: bool = True) -> float:
        """Return its seconds.

        Args:
            kernel: Function that issues the timed kernel; it is called many times.
            waits: Whether the time ends when the device is done; otherwise only the host's time
                counts.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSeconds:
    """Seconds of the host.

    Args:
        forward: Seconds per operator of the forward pass, with operators counted as in the
            forecast.
        backward: Seconds per operator of the backward pass.
        update: Seconds per parameter to update it and to clear its gradient.
        gap: Seconds between two small kernels that were issued in advance; None if the device is
            the host.
    """

    forward: float
    backward: float
    update: float
    gap: float | None


class _Typical(nn.Module):
    """A classifier of images beside a language model, both tiny."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(_CONVOLUTIONS):
            convolution = nn.Conv2d(_CHANNELS, _CHANNELS, 3, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(_CHANNELS), nn.ReLU()]
        self.images = nn.Sequential(*layers)
        self.language = Decoder(_SIZE)

    def forward(self, images: Tensor, tokens: Tensor) -> Tensor:
        """Return one number."""
        return self.images(images).mean() + self.language(tokens).mean()


def _inputs(device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    images = torch.ones(_SAMPLES, _CHANNELS, _PIXELS, _PIXELS, device=device)
    return images, torch.zeros(_SAMPLES, _SIZE.positions, dtype=torch.int64, device=device)


def measure(device: torch.device, timer: Timer) -> HostSeconds:
    """Run the measurement, and block for as long as four kernels are timed.

    Args:
        device: Device that the host feeds, or the host's processors.
        timer: Timer of kernels on that device.
    """
    traced = trace(_Typical, _inputs, name="typical", samples=_SAMPLES).operators
    before = sum(each.phase is TrainingPhase.FORWARD for each in traced)
    module = _Typical().to(device)
    inputs = _inputs(device)
    parameters = list(module.parameters())
    optimizer = torch.optim.Adam(parameters, lr=0.0, fused=True)

    def passes() -> None:
        module(*inputs).backward()
        for each in parameters:
            each.grad = None

    def step() -> None:
        module(*inputs).backward()
        optimizer.step()
        optimizer.zero_grad()

    forward = timer(lambda: module(*inputs), waits=False)
    forward_backward = timer(passes, waits=False)
    whole = timer(step, waits=False)
    gap = None if device.type == "cpu" else _issued_before(module, inputs, timer) / before
    return HostSeconds(
        forward=forward / before,
        backward=max(forward_backward - forward, 0.0) / (len(traced) - before),
        update=max(whole - forward_backward, 0.0) / len(parameters),
        gap=gap,
    )


def _issued_before(module: nn.Module, inputs: tuple[Tensor, ...], timer: Timer) -> float:
    """Return the seconds of a forward pass whose kernels are recorded as a CUDA graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        module(*inputs)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            module(*inputs)
    return timer(graph.replay)
