"""Networks of inverted residuals: MobileNet v2 and v3, and EfficientNet."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from slipstream.forecast.trace.architectures.convolutions import (
    Activation,
    SqueezeExcite,
    conv_norm,
    relu,
)

# Fields of each stage: expansion factor, output channels, number of blocks, stride.
_MOBILENET2 = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip
# Fields of each block: kernel size, expanded channels, output channels, whether it has
# squeeze-and-excitation, whether its activation is hard swish (otherwise ReLU), stride.
_MOBILENET3 = (
    (3, 16, 16, False, False, 1), (3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2), (5, 120, 40, True, False, 1), (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2), (3, 200, 80, False, True, 1), (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1), (3, 480, 112, True, True, 1), (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2), (5, 960, 160, True, True, 1), (5, 960, 160, True, True, 1),
)  # fmt: skip
# Fields of each stage: those of MobileNet v2, then the kernel size.
_EFFICIENTNET = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5), (6, 320, 1, 1, 3),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CompoundScale:
    """Compound scaling of EfficientNet.

    Args:
        width: Factor on the number of channels.
        depth: Factor on the number of blocks.
        side: Width and height of an image, in pixels.
        dropout: Dropout probability before the last linear layer.
    """

    width: float
    depth: float
    side: int
    dropout: float


SCALES = (
    CompoundScale(1.0, 1.0, 224, 0.2),
    CompoundScale(1.0, 1.1, 240, 0.2),
    CompoundScale(1.1, 1.2, 260, 0.3),
    CompoundScale(1.2, 1.4, 300, 0.3),
    CompoundScale(1.4, 1.8, 380, 0.4),
    CompoundScale(1.6, 2.2, 456, 0.4),
    CompoundScale(1.8, 2.6, 528, 0.5),
    CompoundScale(2.0, 3.1, 600, 0.5),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InvertedSize:
    """Dimensions of an inverted residual block.

    Args:
        inputs: Number of input channels.
        expanded: Number of channels inside the block.
        outputs: Number of output channels.
        kernel: Side of the depthwise convolution, in pixels.
        stride: Stride of the depthwise convolution, in pixels.
        squeezed: Number of channels inside squeeze-and-excitation (default 0: the block has no
            squeeze-and-excitation).
        drop: Probability that the block is skipped for a sample; blocks without a shortcut are
            never skipped (default 0).
    """

    inputs: int
    expanded: int
    outputs: int
    kernel: int = 3
    stride: int = 1
    squeezed: int = 0
    drop: float = 0.0


class InvertedBlock(nn.Module):
    """Inverted residual: expansion, depthwise convolution and reduction (Sandler et al., 2018).

    Args:
        size: Dimensions of the block.
        activation: Activation after the first two convolutions.
        squeeze_activation: Activation inside squeeze-and-excitation (default ReLU).
        gate: Last activation of squeeze-and-excitation (default sigmoid).
    """

    def __init__(
        self,
        size: InvertedSize,
        activation: Activation,
        squeeze_activation: Activation = relu,
        gate: Activation = nn.Sigmoid,
    ) -> None:
        super().__init__()
        wide = size.expanded
        layers: list[nn.Module] = []
        if wide != size.inputs:
            layers.append(conv_norm(size.inputs, wide, activation=activation))
        layers.append(
            conv_norm(wide, wide, size.kernel, size.stride, groups=wide, activation=activation)
        )
        if size.squeezed:
            layers.append(SqueezeExcite(wide, size.squeezed, squeeze_activation, gate))
        layers.append(conv_norm(wide, size.outputs, activation=None))
        self.main = nn.Sequential(*layers)
        self.added = size.stride == 1 and size.inputs == size.outputs
        self.drop = size.drop

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the block for x (batch, channels, height, width)."""
        if not self.added:
            return self.main(x)
        if not (self.drop and self.training):
            return x + self.main(x)
        is_kept = torch.empty(len(x), 1, 1, 1, device=x.device).bernoulli_(1.0 - self.drop)
        return x + self.main(x) * is_kept.to(x.dtype).div_(1.0 - self.drop)


class Mobile(nn.Module):
    """Network of inverted residuals between a 3x3 convolution and a classifier.

    Args:
        stem: Number of channels of the 3x3 convolution.
        blocks: All blocks in order of execution.
        head: Numbers of input and output channels of the last convolution.
        activation: Activation after the first and after the last convolution.
        classifier: Module that computes scores from the averaged output of the last convolution.
    """

    def __init__(
        self,
        stem: int,
        blocks: Iterable[InvertedBlock],
        head: tuple[int, int],
        activation: Activation,
        classifier: nn.Module,
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(
            conv_norm(3, stem, 3, 2, activation=activation),
            *blocks,
            conv_norm(*head, activation=activation),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.classifier = classifier

    def forward(self, images: Tensor) -> Tensor:
        """Return scores (batch, classes) of images (batch, 3, height, width)."""
        return self.classifier(self.features(images))


def mobilenet_v2(num_classes: int = 1000, dropout: float = 0.2) -> Mobile:
    """Return MobileNet v2 with width multiplier 1 (Sandler et al., 2018, arXiv 1801.04381).

    Args:
        num_classes: Number of classes.
        dropout: Dropout probability before the last linear layer.
    """
    active = partial(nn.ReLU6, inplace=True)
    blocks: list[InvertedBlock] = []
    inputs = 32
    for factor, outputs, repeats, stride in _MOBILENET2:
        for index in range(repeats):
            size = InvertedSize(
                inputs=inputs,
                expanded=inputs * factor,
                outputs=outputs,
                stride=1 if index else stride,
            )
            blocks.append(InvertedBlock(size, active))
            inputs = outputs
    return Mobile(32, blocks, (320, 1280), active, _last(1280, num_classes, dropout))


def mobilenet_v3_large(num_classes: int = 1000, dropout: float = 0.2) -> Mobile:
    """Return MobileNet v3 large with width multiplier 1 (Howard et al., 2019, arXiv 1905.02244).

    Args:
        num_classes: Number of classes.
        dropout: Dropout probability before the last linear layer.
    """
    blocks: list[InvertedBlock] = []
    inputs = 16
    for kernel, expanded, outputs, squeezes, hard, stride in _MOBILENET3:
        size = InvertedSize(
            inputs=inputs,
            expanded=expanded,
            outputs=outputs,
            kernel=kernel,
            stride=stride,
            squeezed=_rounded(expanded / 4) if squeezes else 0,
        )
        active = nn.Hardswish if hard else relu
        blocks.append(InvertedBlock(size, active, gate=nn.Hardsigmoid))
        inputs = outputs
    classifier = nn.Sequential(
        nn.Linear(960, 1280), nn.Hardswish(), *_last(1280, num_classes, dropout)
    )
    return Mobile(16, blocks, (160, 960), nn.Hardswish, classifier)


def efficientnet(
    number: int, *, wide_squeeze: bool = False, num_classes: int = 1000, drop: float = 0.2
) -> Mobile:
    """Return EfficientNet (Tan and Le, 2019, arXiv 1905.11946).

    Args:
        number: Size of the network, from 0 ("B0") to 7 ("B7").
        wide_squeeze: Whether squeeze-and-excitation has a quarter as many channels as the expanded
            block, as in "widese" of DeepLearningExamples; otherwise, it has a quarter as many as
            the input (default False).
        num_classes: Number of classes.
        drop: Probability of skipping a block for a sample (default 0.2). The probability grows from
            0 for the first block almost to `drop` for the last block.
    """
    scale = SCALES[number]
    blocks: list[InvertedBlock] = []
    inputs = stem = _rounded(32 * scale.width)
    total = sum(math.ceil(row[2] * scale.depth) for row in _EFFICIENTNET)
    for factor, channels, repeats, stride, kernel in _EFFICIENTNET:
        outputs = _rounded(channels * scale.width)
        for index in range(math.ceil(repeats * scale.depth)):
            size = InvertedSize(
                inputs=inputs,
                expanded=inputs * factor,
                outputs=outputs,
                kernel=kernel,
                stride=1 if index else stride,
                squeezed=(inputs * factor if wide_squeeze else inputs) // 4,
                drop=drop * len(blocks) / total,
            )
            blocks.append(InvertedBlock(size, nn.SiLU, nn.SiLU))
            inputs = outputs
    head = _rounded(1280 * scale.width)
    classifier = _last(head, num_classes, scale.dropout)
    return Mobile(stem, blocks, (inputs, head), nn.SiLU, classifier)


def _last(channels: int, num_classes: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(nn.Dropout(dropout), nn.Linear(channels, num_classes))


def _rounded(channels: float) -> int:
    """Return the multiple of 8 that is nearest to `channels`, and at least 90 % of `channels`."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest
