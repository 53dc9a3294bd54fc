"""Networks of inverted residuals for small devices: MobileNetV3-Large and EfficientNet-B0."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from slipstream.bench.zoo.layers import NUM_CLASSES, conv_norm, settle_classifier


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Shape of one inverted residual.

    Args:
        in_channels: Input channels.
        expanded: channels inside; as many as in_channels leaves the expansion out.
        out_channels: Output channels.
        kernel: side of the depthwise convolution, 3 or 5.
        stride: 2 halves the picture.
        squeezed: channels inside squeeze-and-excitation; 0 leaves it out.
        activation: after all convolutions but the last.
    """

    in_channels: int
    expanded: int
    out_channels: int
    kernel: int
    stride: int
    squeezed: int
    activation: type[nn.Module]


class SqueezeExcitation(nn.Module):
    """Scales each channel by a number in [0, 1] that follows from all channels' means.

    Hu et al., "Squeeze-and-Excitation Networks" (2017).

    Args:
        channels: Channels of the input and the output.
        squeezed: channels between the two layers.
        activation: between the two layers.
        gate: makes the number in [0, 1].
    """

    def __init__(
        self, channels: int, squeezed: int, *, activation: type[nn.Module], gate: type[nn.Module]
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
        """Map float32 [batch, channels, h, w] to the same shape."""
        return x * self.scale(x)


class MobileResidual(nn.Module):
    """Expands, convolves each channel by itself and projects, beside a shortcut where shapes allow.

    Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks" (2018).

    Args:
        shape: Shape of the block's layers.
        excitation: between the depthwise convolution and the projection.
    """

    def __init__(self, shape: Shape, excitation: nn.Module | None) -> None:
        super().__init__()
        inside, activation = shape.expanded, shape.activation
        layers: list[nn.Module] = []
        if inside != shape.in_channels:
            layers.append(conv_norm(shape.in_channels, inside, 1, activation=activation))
        layers.append(
            conv_norm(
                inside, inside, shape.kernel, shape.stride, groups=inside, activation=activation
            )
        )
        if excitation is not None:
            layers.append(excitation)
        self.has_shortcut = shape.stride == 1 and shape.in_channels == shape.out_channels
        layers.append(conv_norm(inside, shape.out_channels, 1, ends_branch=self.has_shortcut))
        self.body = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Map float32 [batch, in_channels, h, w] to [batch, out_channels, h/stride, w/stride]."""
        return x + self.body(x) if self.has_shortcut else self.body(x)


# in_channels, kernel, expanded, out_channels, whether squeezed, whether h-swish, stride
MOBILENET_BLOCKS = (
    (16, 3, 16, 16, False, False, 1),
    (16, 3, 64, 24, False, False, 2),
    (24, 3, 72, 24, False, False, 1),
    (24, 5, 72, 40, True, False, 2),
    (40, 5, 120, 40, True, False, 1),
    (40, 5, 120, 40, True, False, 1),
    (40, 3, 240, 80, False, True, 2),
    (80, 3, 200, 80, False, True, 1),
    (80, 3, 184, 80, False, True, 1),
    (80, 3, 184, 80, False, True, 1),
    (80, 3, 480, 112, True, True, 1),
    (112, 3, 672, 112, True, True, 1),
    (112, 5, 672, 160, True, True, 2),
    (160, 5, 960, 160, True, True, 1),
    (160, 5, 960, 160, True, True, 1),
)

# expansion, kernel, stride, in_channels, out_channels, blocks
EFFICIENTNET_STAGES = (
    (1, 3, 1, 32, 16, 1),
    (6, 3, 2, 16, 24, 2),
    (6, 5, 2, 24, 40, 2),
    (6, 3, 2, 40, 80, 3),
    (6, 5, 1, 80, 112, 3),
    (6, 5, 2, 112, 192, 4),
    (6, 3, 1, 192, 320, 1),
)


def mobilenetv3_large() -> nn.Module:
    """Return MobileNetV3-Large: float32 [1, 3, 224, 224] to logits [1, 1000].

    5,483,032 parameters, 0.217 GMAC. Howard et al., "Searching for MobileNetV3" (2019), table 1,
    with squeezed channels of which `_eighths` makes multiples of 8.
    """
    return settle_classifier(_mobilenet)


def efficientnet_b0() -> nn.Module:
    """Return EfficientNet-B0: float32 [1, 3, 224, 224] to logits [1, 1000].

    5,288,548 parameters, 0.386 GMAC. Tan and Le, "EfficientNet: Rethinking Model Scaling for
    Convolutional Neural Networks" (2019), table 1.
    """
    return settle_classifier(_efficientnet)


def _mobilenet() -> nn.Module:
    return nn.Sequential(
        conv_norm(3, 16, 3, 2, activation=nn.Hardswish),
        *(_excited(shape, nn.ReLU, nn.Hardsigmoid) for shape in _mobilenet_shapes()),
        conv_norm(160, 960, 1, activation=nn.Hardswish),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(960, 1280),
        nn.Hardswish(),
        nn.Linear(1280, NUM_CLASSES),
    )


def _efficientnet() -> nn.Module:
    return nn.Sequential(
        conv_norm(3, 32, 3, 2, activation=nn.SiLU),
        *(_excited(shape, nn.SiLU, nn.Sigmoid) for shape in _efficientnet_shapes()),
        conv_norm(320, 1280, 1, activation=nn.SiLU),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(1280, NUM_CLASSES),
    )


def _excited(shape: Shape, activation: type[nn.Module], gate: type[nn.Module]) -> nn.Module:
    excitation = None
    if shape.squeezed:
        excitation = SqueezeExcitation(
            shape.expanded, shape.squeezed, activation=activation, gate=gate
        )
    return MobileResidual(shape, excitation)


def _mobilenet_shapes() -> Iterator[Shape]:
    for channels, kernel, expanded, out_channels, squeezes, swishes, stride in MOBILENET_BLOCKS:
        yield Shape(
            in_channels=channels,
            expanded=expanded,
            out_channels=out_channels,
            kernel=kernel,
            stride=stride,
            squeezed=_eighths(expanded / 4) if squeezes else 0,
            activation=nn.Hardswish if swishes else nn.ReLU,
        )


def _efficientnet_shapes() -> Iterator[Shape]:
    for expansion, kernel, stride, in_channels, out_channels, num_blocks in EFFICIENTNET_STAGES:
        for position in range(num_blocks):
            channels = in_channels if position == 0 else out_channels
            yield Shape(
                in_channels=channels,
                expanded=expansion * channels,
                out_channels=out_channels,
                kernel=kernel,
                stride=stride if position == 0 else 1,
                squeezed=channels // 4,
                activation=nn.SiLU,
            )


def _eighths(channels: float) -> int:
    """Return the nearest multiple of 8 that is not below nine tenths."""
    nearest = int(channels + 4) // 8 * 8
    return nearest if nearest >= 0.9 * channels else nearest + 8
