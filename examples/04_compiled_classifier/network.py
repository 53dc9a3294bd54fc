"""ResNet-26-D for grey images of 28 x 28 pixels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

EXPANSION = 4
DEPTH = 2  # bottlenecks per stage: four stages of two have 24 of the 26 layers


def conv_norm(in_channels: int, out_channels: int, size: int, stride: int = 1) -> nn.Sequential:
    """Return a convolution, padded so that only its stride changes the size, and a batch norm."""
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, size, stride, padding=size // 2, bias=False),
        nn.BatchNorm2d(out_channels),
    )


class Bottleneck(nn.Module):
    """Convolutions of 1 x 1, 3 x 3 and 1 x 1 beside a shortcut.

    If the 3 x 3 convolution has a stride of 2, average pooling halves the shortcut.
    """

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = EXPANSION * width
        self.body = nn.Sequential(
            conv_norm(in_channels, width, 1),
            nn.ReLU(),
            conv_norm(width, width, 3, stride),
            nn.ReLU(),
            conv_norm(width, out_channels, 1),
        )
        nn.init.zeros_(self.body[-1][1].weight)  # initially the block equals its shortcut
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = conv_norm(in_channels, out_channels, 1)
        if stride != 1:
            halved = nn.AvgPool2d(2, 2, ceil_mode=True, count_include_pad=False)
            self.shortcut = nn.Sequential(halved, self.shortcut)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


def resnet26d(widths: Sequence[int] = (16, 32, 64, 128)) -> nn.Module:
    """Build the network: a stem of three convolutions, four stages of bottlenecks, a classifier.

    He et al., "Bag of Tricks for Image Classification with Convolutional Neural Networks" (2018),
    section 4.2. For images of 28 x 28 pixels, the stem halves them once, without max pooling.

    Args:
        widths: Widths of the bottlenecks by stage; every stage after the first halves the image.

    Returns:
        A module that maps float images [batch, 1, 28, 28] to logits [batch, 10].
    """
    channels = widths[0] * 2
    layers: list[nn.Module] = [
        *(conv_norm(1, channels // 2, 3, 2), nn.ReLU()),
        *(conv_norm(channels // 2, channels // 2, 3), nn.ReLU()),
        *(conv_norm(channels // 2, channels, 3), nn.ReLU()),
    ]
    for stage, width in enumerate(widths):
        for position in range(DEPTH):
            stride = 2 if stage > 0 and position == 0 else 1
            layers.append(Bottleneck(channels, width, stride))
            channels = EXPANSION * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)
