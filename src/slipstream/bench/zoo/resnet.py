"""Residual networks of bottlenecks: ResNet-50 and ResNet-26-D."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from slipstream.bench.zoo.layers import NUM_CLASSES, conv_norm, settle_classifier

STAGE_WIDTHS = (64, 128, 256, 512)
EXPANSION = 4


class Bottleneck(nn.Module):
    """Convolutions of 1 x 1, 3 x 3 and 1 x 1 beside a shortcut; the 3 x 3 one has the stride.

    Args:
        in_channels: Input channels.
        width: channels inside; the output has four times as many.
        stride: 2 halves the picture.
        pooled: whether a shortcut halves the picture by average pooling, not by its convolution.
    """

    def __init__(self, in_channels: int, width: int, stride: int, *, pooled: bool) -> None:
        super().__init__()
        out_channels = EXPANSION * width
        self.body = nn.Sequential(
            conv_norm(in_channels, width, 1, activation=nn.ReLU),
            conv_norm(width, width, 3, stride, activation=nn.ReLU),
            conv_norm(width, out_channels, 1, ends_branch=True),
        )
        self.shortcut: nn.Module = nn.Identity()
        if pooled and stride != 1:
            halved = nn.AvgPool2d(stride, stride)
            self.shortcut = nn.Sequential(halved, conv_norm(in_channels, out_channels, 1))
        elif stride != 1 or in_channels != out_channels:
            self.shortcut = conv_norm(in_channels, out_channels, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map float32 [batch, in_channels, h, w] to [batch, 4 width, h/stride, w/stride]."""
        return functional.relu(self.body(x) + self.shortcut(x))


def resnet50() -> nn.Module:
    """Return ResNet-50 in the form called v1.5: float32 [1, 3, 224, 224] to logits [1, 1000].

    25,557,032 parameters, 4.09 GMAC. He et al., "Deep Residual Learning for Image Recognition"
    (2015); v1.5 strides in a bottleneck's 3 x 3 convolution, not in its first.
    """
    return settle_classifier(_resnet50)


def resnet26d() -> nn.Module:
    """Return ResNet-26-D: float32 [1, 3, 224, 224] to logits [1, 1000].

    16,014,408 parameters, 2.58 GMAC. He et al., "Bag of Tricks for Image Classification with
    Convolutional Neural Networks" (2018), section 4.2: a stem of three convolutions, and shortcuts
    that pool; with two bottlenecks per stage.
    """
    return settle_classifier(_resnet26d)


def _resnet50() -> nn.Module:
    stem = [conv_norm(3, 64, 7, 2, activation=nn.ReLU)]
    return _network(stem, (3, 4, 6, 3), pooled=False)


def _resnet26d() -> nn.Module:
    stem = [
        conv_norm(3, 32, 3, 2, activation=nn.ReLU),
        conv_norm(32, 32, 3, activation=nn.ReLU),
        conv_norm(32, 64, 3, activation=nn.ReLU),
    ]
    return _network(stem, (2, 2, 2, 2), pooled=True)


def _network(stem: Sequence[nn.Module], depths: Sequence[int], *, pooled: bool) -> nn.Module:
    blocks: list[nn.Module] = []
    channels = 64
    for stage, (width, depth) in enumerate(zip(STAGE_WIDTHS, depths, strict=True)):
        for position in range(depth):
            stride = 2 if stage > 0 and position == 0 else 1
            blocks.append(Bottleneck(channels, width, stride, pooled=pooled))
            channels = EXPANSION * width
    return nn.Sequential(
        *stem,
        nn.MaxPool2d(3, 2, padding=1),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, NUM_CLASSES),
    )
