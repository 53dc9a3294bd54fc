"""Measurement of the time that the host needs to issue the operators of a typical model.

The model has convolutions, batch norms and transformer blocks, written in plain PyTorch. The
model's layers are so small that the device has almost nothing to do.
"""

# PyTorch's type stubs leave some types unspecified.
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
    """A function that times a kernel."""

    def __call__(self, kernel: Callable[[], object], *, waits: bool = True) -> float:
        """Return the seconds of a kernel.

        Args:
            kernel: Function that issues the timed kernel; it is called many times.
            waits: Whether the measured time ends when the device is done (default True); otherwise
                it ends when the host has issued the kernel.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSeconds:
    """Seconds that the host needs to issue operators.

    Args:
        forward: Seconds per operator of the forward pass. The operators are those that a forecast
            records when it traces the model.
        backward: Seconds per operator of the backward pass.
        update: Seconds to update one parameter and to clear its gradient.
        gap: Seconds between two small kernels that were issued in advance; None without a GPU.
    """

    forward: float
    backward: float
    update: float
    gap: float | None


class _Typical(nn.Module):
    """A tiny image classifier and a tiny language model, which run one after the other."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(_CONVOLUTIONS):
            convolution = nn.Conv2d(_CHANNELS, _CHANNELS, 3, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(_CHANNELS), nn.ReLU()]
        self.images = nn.Sequential(*layers)
        self.language = Decoder(_SIZE)

    def forward(self, images: Tensor, tokens: Tensor) -> Tensor:
        """Return one number, from which a backward pass can start."""
        return self.images(images).mean() + self.language(tokens).mean()


def _inputs(device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    images = torch.ones(_SAMPLES, _CHANNELS, _PIXELS, _PIXELS, device=device)
    return images, torch.zeros(_SAMPLES, _SIZE.positions, dtype=torch.int64, device=device)


def measure(device: torch.device, timer: Timer) -> HostSeconds:
    """Measure how long the host takes to issue operators, with up to four calls of `timer`.

    Args:
        device: Device for which the host issues operators.
        timer: Function that times kernels on `device`.
    """
    operators = trace(_Typical, _inputs, name="typical", samples=_SAMPLES).operators
    num_forward = sum(operator.phase is TrainingPhase.FORWARD for operator in operators)
    module = _Typical().to(device)
    inputs = _inputs(device)
    parameters = list(module.parameters())
    optimizer = torch.optim.Adam(parameters, lr=0.0, fused=True)

    def passes() -> None:
        module(*inputs).backward()
        for parameter in parameters:
            parameter.grad = None

    def step() -> None:
        module(*inputs).backward()
        optimizer.step()
        optimizer.zero_grad()

    forward = timer(lambda: module(*inputs), waits=False)
    forward_backward = timer(passes, waits=False)
    full_step = timer(step, waits=False)
    gap = None if device.type == "cpu" else _replayed(module, inputs, timer) / num_forward
    return HostSeconds(
        forward=forward / num_forward,
        backward=max(forward_backward - forward, 0.0) / (len(operators) - num_forward),
        update=max(full_step - forward_backward, 0.0) / len(parameters),
        gap=gap,
    )


def _replayed(module: nn.Module, inputs: tuple[Tensor, ...], timer: Timer) -> float:
    """Return the seconds of a forward pass that is replayed as a CUDA graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        module(*inputs)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            module(*inputs)
    return timer(graph.replay)
