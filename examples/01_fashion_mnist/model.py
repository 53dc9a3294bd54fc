"""A small residual network for 28 x 28 grey images: 166,000 parameters at the default widths."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

Norm = Callable[[int], nn.Module]
Activation = Callable[[], nn.Module]


class Residual(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut; a stride of 2 halves the image."""

    def __init__(
        self, in_channels: int, out_channels: int, stride: int, norm: Norm, activation: Activation
    ) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False),
            norm(out_channels),
            activation(),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
            norm(out_channels),
        )
        self.activation = activation()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride, bias=False), norm(out_channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.body(x) + self.shortcut(x))


def small_resnet(
    widths: Sequence[int] = (32, 64),
    norm: Norm = nn.BatchNorm2d,
    activation: Activation = nn.ReLU,
) -> nn.Module:
    """Build the network: a stride-2 stem, two residual blocks per width, a linear classifier.

    Args:
        widths: Channels of each pair of blocks; the first block of a pair halves the image.
        norm: Constructor of a normalisation layer for a number of channels.
        activation: Constructor of an activation layer.

    Returns:
        A module that maps float images [batch, 1, 28, 28] to logits [batch, 10].
    """
    channels = widths[0] // 2
    stem = nn.Conv2d(1, channels, 5, stride=2, padding=2, bias=False)
    layers: list[nn.Module] = [stem, norm(channels), activation()]
    for width in widths:
        layers.append(Residual(channels, width, 2, norm, activation))
        layers.append(Residual(width, width, 1, norm, activation))
        channels = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]
    # Convolutions of oneDNN are about a third faster with channels last.
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)
