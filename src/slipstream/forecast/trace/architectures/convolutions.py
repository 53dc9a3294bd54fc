"""What architectures of images consist of: convolutions with norms, branches, squeezes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

Activation = Callable[[], nn.Module]

relu: Activation = partial(nn.ReLU, inplace=True)


def conv_norm(
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int] = 1,
    stride: int = 1,
    *,
    padding: int | tuple[int, int] | None = None,
    groups: int = 1,
    activation: Activation | None = relu,
) -> nn.Sequential:
    """Returns a convolution, its batch norm and what follows them.

    Args:
        inputs: channels.
        outputs: channels.
        kernel: its side, or height and width.
        stride: pixels from one window to the next.
        padding: around the image; None: half the kernel, which keeps the size.
        groups: of channels that do not see each other.
        activation: makes what follows; None: nothing.
    """
    height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    layers: list[nn.Module] = [
        nn.Conv2d(
            inputs,
            outputs,
            (height, width),
            stride,
            (height // 2, width // 2) if padding is None else padding,
            groups=groups,
            bias=False,
        ),
        nn.BatchNorm2d(outputs),
    ]
    if activation is not None:
        layers.append(activation())
    return nn.Sequential(*layers)


class Branches(nn.Module):
    """Runs modules on the same input and puts their channels one after another.

    Args:
        branches: of equal height and width of outputs.
    """

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the channels of all; x: (batch, channels, height, width)."""
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class SqueezeExcite(nn.Module):
    """Scales each channel by what the means of all say (Hu et al., 2018).

    Args:
        channels: of the input.
        squeezed: channels between the two products.
        activation: between them.
        gate: after them.
    """

    def __init__(
        self,
        channels: int,
        squeezed: int,
        activation: Activation = relu,
        gate: Activation = nn.Sigmoid,
    ) -> None:
        super().__init__()
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            activation(),
            nn.Conv2d(squeezed, channels, 1),
            gate(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Returns the scaled input; x: (batch, channels, height, width)."""
        return x * self.scale(x)
