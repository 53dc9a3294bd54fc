"""Residual networks: ResNet, ResNeXt, SE-ResNeXt and ResNet-D."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from slipstream.forecast.trace.architectures.convolutions import SqueezeExcite, conv_norm

_STEM = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ResNetSize:
    """Dimensions of a residual network.

    Args:
        blocks: Number of blocks of each stage; a stage has twice the channels of the stage before
            it.
        strides: Stride of the first block of each stage, in pixels.
        bottleneck: Whether a block consists of a 1x1, a 3x3 and a 1x1 convolution, and has four
            times as many output channels as inner channels; otherwise, a block consists of two 3x3
            convolutions.
        groups: Number of groups of channels in the 3x3 convolution of a bottleneck block (default
            1).
        group_width: Number of channels of a group in the first stage (default 64).
        squeezed: Whether blocks end in squeeze-and-excitation with a reduction of 16 (default
            False).
        stride_first: Whether the first 1x1 convolution of a block has the stride (ResNet v1);
            otherwise, the 3x3 convolution has the stride (v1.5) (default False).
        deep: Whether the network is a ResNet-D (default False): three 3x3 convolutions replace the
            first 7x7 convolution, and shortcuts with a stride begin with average pooling.
        num_classes: Number of classes.
    """

    blocks: tuple[int, ...]
    strides: tuple[int, ...] = (1, 2, 2, 2)
    bottleneck: bool = True
    groups: int = 1
    group_width: int = 64
    squeezed: bool = False
    stride_first: bool = False
    deep: bool = False
    num_classes: int = 1000

    @property
    def expansion(self) -> int:
        """Ratio of a block's output channels to its inner channels: 4 or 1."""
        return 4 if self.bottleneck else 1

    @property
    def outputs(self) -> int:
        """Number of output channels of the last stage."""
        return self.expansion * _STEM << (len(self.blocks) - 1)


_PUBLISHED = {
    "resnet18": ResNetSize(blocks=(2, 2, 2, 2), bottleneck=False),
    "resnet34": ResNetSize(blocks=(3, 4, 6, 3), bottleneck=False),
    "resnet50": ResNetSize(blocks=(3, 4, 6, 3)),
    "resnet101": ResNetSize(blocks=(3, 4, 23, 3)),
    "resnet152": ResNetSize(blocks=(3, 8, 36, 3)),
    "resnet26d": ResNetSize(blocks=(2, 2, 2, 2), deep=True),
    "resnext101-32x4d": ResNetSize(blocks=(3, 4, 23, 3), groups=32, group_width=4),
    "se-resnext101-32x4d": ResNetSize(
        blocks=(3, 4, 23, 3), groups=32, group_width=4, squeezed=True
    ),
}


def resnet(name: str, **changes: Any) -> ResNet:
    """Return a residual network of published dimensions.

    Args:
        name: Name of the network, such as "resnet50".
        changes: Fields to replace in the network's `ResNetSize`, such as num_classes=10.
    """
    return ResNet(replace(_PUBLISHED[name], **changes))


class ResNet(nn.Module):
    """ResNet (He et al., 2016, arXiv 1512.03385) and its successors.

    The successors of ResNet are ResNeXt (arXiv 1611.05431), squeeze-and-excitation (arXiv
    1709.01507) and ResNet-D (arXiv 1812.01187).

    Args:
        size: Dimensions of the network.
    """

    def __init__(self, size: ResNetSize) -> None:
        super().__init__()
        self.trunk = trunk(size)
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(size.outputs, size.num_classes)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return scores (batch, classes) of images (batch, 3, 224, 224)."""
        return self.classifier(self.trunk(images))


class ResidualBlock(nn.Module):
    """The sum of the outputs of two modules, a main path and a shortcut, followed by a ReLU.

    Args:
        main: Module whose output is added to the output of `shortcut`.
        shortcut: Module that gives the input the shape of the output of `main`.
    """

    def __init__(self, main: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.main, self.shortcut = main, shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Return ReLU(main(x) + shortcut(x)) for x of shape (batch, channels, height, width)."""
        return functional.relu(self.main(x) + self.shortcut(x), inplace=True)


def trunk(size: ResNetSize) -> nn.Sequential:
    """Return the layers of a residual network that precede its classifier.

    Args:
        size: Dimensions of the network; `num_classes` is not used.
    """
    layers: list[nn.Module] = [_stem(size), nn.MaxPool2d(3, 2, 1)]
    inputs = _STEM
    for depth, (blocks, stride) in enumerate(zip(size.blocks, size.strides, strict=True)):
        width = _STEM << depth
        for index in range(blocks):
            layers.append(_block(size, inputs, width, 1 if index else stride))
            inputs = width * size.expansion
    return nn.Sequential(*layers)


def _stem(size: ResNetSize) -> nn.Module:
    if not size.deep:
        return conv_norm(3, _STEM, 7, 2)
    half = _STEM // 2
    return nn.Sequential(
        conv_norm(3, half, 3, 2), conv_norm(half, half, 3), conv_norm(half, _STEM, 3)
    )


def _block(size: ResNetSize, inputs: int, width: int, stride: int) -> ResidualBlock:
    outputs = width * size.expansion
    main = (_bottleneck if size.bottleneck else _basic)(size, inputs, width, stride)
    if size.squeezed:
        main.append(SqueezeExcite(outputs, outputs // 16))
    return ResidualBlock(main, _shortcut(size, inputs, outputs, stride))


def _bottleneck(size: ResNetSize, inputs: int, width: int, stride: int) -> nn.Sequential:
    inner = width * size.group_width // _STEM * size.groups
    first, second = (stride, 1) if size.stride_first else (1, stride)
    return nn.Sequential(
        conv_norm(inputs, inner, 1, first),
        conv_norm(inner, inner, 3, second, groups=size.groups),
        conv_norm(inner, width * size.expansion, activation=None),
    )


def _basic(size: ResNetSize, inputs: int, width: int, stride: int) -> nn.Sequential:
    outputs = width * size.expansion
    return nn.Sequential(
        conv_norm(inputs, width, 3, stride), conv_norm(width, outputs, 3, activation=None)
    )


def _shortcut(size: ResNetSize, inputs: int, outputs: int, stride: int) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    if size.deep and stride > 1:
        pool = nn.AvgPool2d(stride, stride, ceil_mode=True, count_include_pad=False)
        return nn.Sequential(pool, conv_norm(inputs, outputs, activation=None))
    return conv_norm(inputs, outputs, 1, stride, activation=None)
