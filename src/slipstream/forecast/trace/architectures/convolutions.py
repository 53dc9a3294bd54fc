"""Parts of image architectures: convolutions with norms, branches, squeeze-and-excitation."""

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
    """Return a convolution followed by its batch norm and an activation.

    Args:
        inputs: Number of input channels.
        outputs: Number of output channels.
        kernel: Side of the window, or its height and width, in pixels.
        stride: Number of pixels from one window to the next (default 1).
        padding: Number of pixels around the image (default None: half the kernel, which keeps the
            image size).
        groups: Number of groups of channels that are convolved separately (default 1).
        activation: Function that returns a new activation module, or None for no activation
            (default ReLU).
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
    """Modules that run on the same input and whose output channels are concatenated.

    Args:
        branches: Modules whose outputs have equal height and width.
    """

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of all branches, concatenated by channel.

        Args:
            x: Input of every branch (batch, channels, height, width).
        """
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class SqueezeExcite(nn.Module):
    """Scaling of each channel by a factor computed from all channels' means (Hu et al., 2018).

    Args:
        channels: Number of input channels.
        squeezed: Number of channels between the two 1x1 convolutions.
        activation: Activation between the two convolutions (default ReLU).
        gate: Activation after the second convolution (default sigmoid).
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
        """Return `x` (batch, channels, height, width) with scaled channels."""
        return x * self.scale(x)
