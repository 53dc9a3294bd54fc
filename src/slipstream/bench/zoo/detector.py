"""A small one-stage detector like YOLO: a CSP backbone, a PAN neck, and three heads."""

# PyTorch's type stubs leave some types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from slipstream.bench.zoo.layers import BranchNorm2d, calibration_images, settle

SIZE = 320
NUM_CLASSES = 80
NUM_FIELDS = 5 + NUM_CLASSES  # centre x and y, width, height, objectness, and a score per class
STRIDES = (8, 16, 32)
ANCHORS = (  # widths and heights of the anchor boxes in pixels, for each stride
    ((8.0, 10.0), (14.0, 24.0), (27.0, 19.0)),
    ((25.0, 48.0), (50.0, 36.0), (47.0, 95.0)),
    ((93.0, 72.0), (125.0, 158.0), (299.0, 261.0)),
)


def conv(
    in_channels: int, out_channels: int, kernel: int, stride: int = 1, *, ends_branch: bool = False
) -> nn.Module:
    """Return a sequence: a convolution without bias, a batch normalisation, and SiLU.

    The sequence maps float32 [batch, in_channels, h, w] to [batch, out_channels, h/stride,
    w/stride] if the stride divides both sides. If `ends_branch`, the output of the sequence is
    added to a shortcut, so it is scaled by `BRANCH_GAIN`.
    """
    padding = (kernel - 1) // 2
    norm = BranchNorm2d if ends_branch else nn.BatchNorm2d
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, kernel, stride, padding, bias=False),
        norm(out_channels),
        nn.SiLU(),
    )


class DetectorBottleneck(nn.Module):
    """Convolutions of 1 x 1 and 3 x 3, with a shortcut around them if `shortcut` is true."""

    def __init__(self, channels: int, *, shortcut: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(channels, channels, 1), conv(channels, channels, 3, ends_branch=shortcut)
        )
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Map float32 [batch, channels, h, w] to the same shape."""
        return x + self.body(x) if self.shortcut else self.body(x)


class CrossStage(nn.Module):
    """A sequence of bottlenecks beside a bypass, each for half of the output channels.

    Source: Wang et al., "CSPNet" (2019).
    """

    def __init__(
        self, in_channels: int, out_channels: int, depth: int, *, shortcut: bool = True
    ) -> None:
        super().__init__()
        half = out_channels // 2
        blocks = (DetectorBottleneck(half, shortcut=shortcut) for _ in range(depth))
        self.through = nn.Sequential(conv(in_channels, half, 1), *blocks)
        self.past = conv(in_channels, half, 1)
        self.joined = conv(out_channels, out_channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map float32 [batch, in_channels, h, w] to [batch, out_channels, h, w]."""
        return self.joined(torch.cat((self.through(x), self.past(x)), dim=1))


class PoolPyramid(nn.Module):
    """Max poolings with windows of 5 x 5, 9 x 9 and 13 x 13 pixels, whose results are concatenated.

    Each pooling reads the result of the pooling with the next smaller window. Source: He et al.,
    "Spatial Pyramid Pooling in Deep Convolutional Networks" (2014), with the window sizes of YOLO.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.narrowed = conv(channels, channels // 2, 1)
        self.joined = conv(2 * channels, channels, 1)
        self.pool = nn.MaxPool2d(5, 1, padding=2)

    def forward(self, x: Tensor) -> Tensor:
        """Map float32 [batch, channels, h, w] to the same shape."""
        levels: list[Tensor] = [self.narrowed(x)]
        for _ in range(3):
            levels.append(self.pool(levels[-1]))
        return self.joined(torch.cat(levels, dim=1))


class Backbone(nn.Module):
    """Convolutions that compute features at strides 8, 16 and 32."""

    def __init__(self) -> None:
        super().__init__()
        self.to_8 = nn.Sequential(
            nn.Conv2d(3, 32, 6, 2, padding=2, bias=False),
            nn.BatchNorm2d(32),
            nn.SiLU(),
            *(conv(32, 64, 3, 2), CrossStage(64, 64, 1)),
            *(conv(64, 128, 3, 2), CrossStage(128, 128, 2)),
        )
        self.to_16 = nn.Sequential(conv(128, 256, 3, 2), CrossStage(256, 256, 3))
        self.to_32 = nn.Sequential(conv(256, 512, 3, 2), CrossStage(512, 512, 1), PoolPyramid(512))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Map float32 [batch, 3, s, s] to [batch, 128 k, s/(8 k), s/(8 k)] for k = 1, 2 and 4."""
        at_8 = self.to_8(image)
        at_16 = self.to_16(at_8)
        return at_8, at_16, self.to_32(at_16)


class Neck(nn.Module):
    """Fusion of features from coarse to fine and back to coarse (Liu et al., "PANet", 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow_32 = conv(512, 256, 1)
        self.up_16 = CrossStage(512, 256, 2, shortcut=False)
        self.narrow_16 = conv(256, 128, 1)
        self.up_8 = CrossStage(256, 128, 2, shortcut=False)
        self.halve_8 = conv(128, 128, 3, 2)
        self.down_16 = CrossStage(256, 256, 2, shortcut=False)
        self.halve_16 = conv(256, 256, 3, 2)
        self.down_32 = CrossStage(512, 512, 2, shortcut=False)

    def forward(self, at_8: Tensor, at_16: Tensor, at_32: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Map the backbone's features to features of the same shapes."""
        coarse = self.narrow_32(at_32)
        middle = self.narrow_16(self.up_16(torch.cat((_doubled(coarse), at_16), dim=1)))
        out_8 = self.up_8(torch.cat((_doubled(middle), at_8), dim=1))
        out_16 = self.down_16(torch.cat((self.halve_8(out_8), middle), dim=1))
        return out_8, out_16, self.down_32(torch.cat((self.halve_16(out_16), coarse), dim=1))


class Head(nn.Module):
    """Prediction of boxes, for each anchor box at every position of a feature map.

    Args:
        channels: Number of channels of the features.
        stride: Distance between two positions in pixels.
        anchors: Widths and heights of the anchor boxes in pixels.
    """

    grid: Tensor
    sizes: Tensor

    def __init__(
        self, channels: int, stride: int, anchors: tuple[tuple[float, float], ...]
    ) -> None:
        super().__init__()
        self.stride = stride
        self.side = SIZE // stride
        self.fields = nn.Conv2d(channels, len(anchors) * NUM_FIELDS, 1)
        steps = torch.arange(self.side, dtype=torch.float32)
        rows, columns = torch.meshgrid(steps, steps, indexing="ij")
        self.register_buffer("grid", torch.stack((columns, rows), dim=-1) - 0.5)
        self.register_buffer("sizes", torch.tensor(anchors).reshape(1, len(anchors), 1, 1, 2))

    def forward(self, x: Tensor) -> Tensor:
        """Map float32 [batch, channels, side, side] to boxes [batch, 3 side^2, 85]."""
        fields = self.fields(x).reshape(-1, self.sizes.shape[1], NUM_FIELDS, self.side, self.side)
        fields = fields.permute(0, 1, 3, 4, 2).sigmoid()
        centre = (2 * fields[..., :2] + self.grid) * self.stride
        size = (2 * fields[..., 2:4]) ** 2 * self.sizes
        return torch.cat((centre, size, fields[..., 4:]), dim=-1).reshape(
            -1, self.sizes.shape[1] * self.side**2, NUM_FIELDS
        )


class Detector(nn.Module):
    """A backbone, a neck, and one head for each stride."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone()
        self.neck = Neck()
        self.heads = nn.ModuleList(
            Head(16 * stride, stride, anchors)
            for stride, anchors in zip(STRIDES, ANCHORS, strict=True)
        )

    def forward(self, image: Tensor) -> Tensor:
        """Map float32 [batch, 3, 320, 320] to boxes [batch, 6300, 85]."""
        features = self.neck(*self.backbone(image))
        return torch.cat([head(x) for head, x in zip(self.heads, features, strict=True)], dim=1)


def detector() -> nn.Module:
    """Return the detector, which maps float32 [1, 3, 320, 320] to boxes [1, 6300, 85].

    Each box has centre and size in pixels, objectness, and the probabilities of 80 classes. The
    network has 8,261,693 parameters and takes 2.32 GMAC. The network follows Redmon et al., "You
    Only Look Once" (2015), with newer parts from papers that the classes of this module cite.
    """
    return settle(Detector, calibration_images(SIZE))


def _doubled(x: Tensor) -> Tensor:
    return functional.interpolate(x, scale_factor=2.0, mode="nearest")
