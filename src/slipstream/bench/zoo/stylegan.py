"""A small StyleGAN2 generator without noise inputs; a style scales the weights of convolutions.

Source: Karras et al., "Analyzing and Improving the Image Quality of StyleGAN" (2019), section 2.2
and appendix B. The scales of the paper's "equalized learning rate" are part of the weights.

Shapes: b is the batch size, i the number of input channels, o the number of output channels, and k
    the side of a kernel.
"""

# PyTorch's type stubs leave some types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from slipstream.bench.zoo.layers import settle

WIDTH = 512  # length of the latent z and of the styles
NUM_MAPPING_LAYERS = 8
# number of channels at the image sides 4, 8, 16, 32, 64 and 128
CHANNELS = (512, 512, 512, 256, 128, 64)
SLOPE = 0.2
EPSILON = 1e-8


class ModulatedConvolution(nn.Module):
    """A convolution whose weights are scaled by a style, per sample and input channel.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        kernel: Side of the kernel, 1 or 3.
        demodulated: Whether the weights of each output channel are normalised to length 1 (default
            True).
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel: int, *, demodulated: bool = True
    ) -> None:
        super().__init__()
        scale = 1 / math.sqrt(in_channels * kernel**2)
        self.weight = nn.Parameter(scale * torch.randn(out_channels, in_channels, kernel, kernel))
        self.affine = nn.Parameter(torch.randn(in_channels, WIDTH) / math.sqrt(WIDTH))
        self.offset = nn.Parameter(1 + 0.1 * torch.randn(in_channels))
        self.demodulated = demodulated

    def weights(self, style: Tensor) -> Tensor:
        """Map styles float32 [b, 512] to weights [b, o, i, k, k]."""
        scale_bi = functional.linear(style, self.affine, self.offset)
        weights = self.weight * scale_bi[:, None, :, None, None]
        if self.demodulated:
            weights = weights * torch.rsqrt(weights.square().sum((2, 3, 4), True) + EPSILON)
        return weights

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        """Map float32 [b, i, h, w] and styles [b, 512] to [b, o, h, w]."""
        weights = self.weights(style)
        padding = weights.shape[-1] // 2
        joined = x.reshape(1, -1, *x.shape[2:])
        out = functional.conv2d(joined, weights.flatten(0, 1), None, 1, padding, 1, x.shape[0])
        return out.reshape(x.shape[0], -1, *out.shape[2:])


class ModulatedUp(ModulatedConvolution):
    """Transposed modulated convolution with stride 2 and a blur, which doubles image sides."""

    fir: Tensor

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 3)
        self.register_buffer("fir", _fir().repeat(out_channels, 1, 1, 1))

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        """Map float32 [b, i, h, w] and styles [b, 512] to [b, o, 2h, 2w]."""
        weights = self.weights(style).transpose(1, 2).flatten(0, 1)
        joined = x.reshape(1, -1, *x.shape[2:])
        out = functional.conv_transpose2d(joined, weights, None, 2, 0, 0, x.shape[0])
        out = out.reshape(x.shape[0], -1, *out.shape[2:])
        return functional.conv2d(out, self.fir, None, 1, 1, 1, self.fir.shape[0])


class Styled(nn.Module):
    """A modulated convolution with bias and leaky ReLU."""

    def __init__(self, convolution: ModulatedConvolution, out_channels: int) -> None:
        super().__init__()
        self.convolution = convolution
        self.bias = nn.Parameter(0.1 * torch.randn(1, out_channels, 1, 1))

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        """Map float32 [b, i, h, w] and styles [b, 512] to [b, o, h or 2h, w or 2w]."""
        return _activated(self.convolution(x, style) + self.bias)


class ToRgb(nn.Module):
    """Sum of the image made from the features and of the enlarged image of the previous size."""

    fir: Tensor

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.convolution = ModulatedConvolution(in_channels, 3, 1, demodulated=False)
        self.bias = nn.Parameter(0.1 * torch.randn(1, 3, 1, 1))
        self.register_buffer("fir", _fir().repeat(3, 1, 1, 1))

    def forward(self, x: Tensor, style: Tensor, smaller: Tensor | None) -> Tensor:
        """Map float32 [b, i, h, w], styles and an image [b, 3, h/2, w/2] to [b, 3, h, w]."""
        image = self.convolution(x, style) + self.bias
        if smaller is None:
            return image
        return image + functional.conv_transpose2d(smaller, self.fir, None, 2, 1, 0, 3)


class Mapping(nn.Module):
    """Eight layers that map a normalised latent z to a style."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(NUM_MAPPING_LAYERS))

    def forward(self, z: Tensor) -> Tensor:
        """Map float32 [b, 512] to styles [b, 512]."""
        style = z * torch.rsqrt(z.square().mean(1, True) + EPSILON)
        for layer in self.layers:
            style = _activated(layer(style))
        return style


class Generator(nn.Module):
    """The generator: a mapping, a constant 4 x 4 input, and layers for each doubled size."""

    def __init__(self) -> None:
        super().__init__()
        self.mapping = Mapping()
        self.constant = nn.Parameter(torch.randn(1, CHANNELS[0], 4, 4))
        self.first = Styled(ModulatedConvolution(CHANNELS[0], CHANNELS[0], 3), CHANNELS[0])
        self.first_rgb = ToRgb(CHANNELS[0])
        sizes = tuple(pairwise(CHANNELS))
        self.doublings = nn.ModuleList(Styled(ModulatedUp(i, o), o) for i, o in sizes)
        self.refinements = nn.ModuleList(Styled(ModulatedConvolution(o, o, 3), o) for _, o in sizes)
        self.images = nn.ModuleList(ToRgb(o) for _, o in sizes)

    def forward(self, z: Tensor) -> Tensor:
        """Map float32 [b, 512] to images [b, 3, 128, 128]."""
        style = self.mapping(z)
        x = self.first(self.constant.expand(z.shape[0], -1, -1, -1), style)
        image = self.first_rgb(x, style, None)
        for double, refine, show in zip(self.doublings, self.refinements, self.images, strict=True):
            x = refine(double(x, style), style)
            image = show(x, style, image)
        return image


def stylegan() -> nn.Module:
    """Return the generator, which maps z, float32 [1, 512], to an image [1, 3, 128, 128].

    The network has 19,258,322 parameters and takes 3.74 GMAC. From 32 x 32 pixels on, the network
    has half as many channels as in the paper.
    """
    return settle(Generator)


def latent(seed: int) -> dict[str, NDArray[np.float32]]:
    """Return a random latent z: float32 [1, 512]."""
    return {"z": np.random.default_rng(seed).standard_normal((1, WIDTH), dtype=np.float32)}


def _activated(x: Tensor) -> Tensor:
    return functional.leaky_relu(x, SLOPE) * math.sqrt(2)


def _fir() -> Tensor:
    """Return a blur filter, the outer product of [1, 3, 3, 1] / 4 with itself: [1, 1, 4, 4]."""
    taps = torch.tensor([1.0, 3.0, 3.0, 1.0]) / 4
    return torch.outer(taps, taps)[None, None]
