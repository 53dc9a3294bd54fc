"""Single convolutions of ResNet-50, to compare their speed with the processor's peak rate.

slipstream bench infer slipstream.bench.zoo.convolutions:POINTWISE
"""

# PyTorch's type stubs leave some types unspecified.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from slipstream.bench.zoo import ZooModel


def chain(*layers: nn.Module) -> nn.Module:
    """Return a sequence of layers, each followed by a ReLU; the weights are always the same."""
    torch.manual_seed(0)
    steps: list[nn.Module] = []
    for layer in layers:
        steps += [layer, nn.ReLU()]
    return nn.Sequential(*steps).eval()


def pointwise() -> nn.Module:
    """Return four 1x1 convolutions at 56 x 56: from 64 to 256 channels and back, twice."""
    return chain(*(nn.Conv2d(*sizes, 1) for sizes in ((64, 256), (256, 64)) * 2))


def square() -> nn.Module:
    """Return three 3x3 convolutions with 128 channels at 28 x 28."""
    return chain(*(nn.Conv2d(128, 128, 3, padding=1) for _ in range(3)))


def stem() -> nn.Module:
    """Return a 7x7 convolution with stride 2, from 3 to 64 channels at 224 x 224."""
    return chain(nn.Conv2d(3, 64, 7, stride=2, padding=3))


def _inputs(channels: int, size: int, seed: int) -> Mapping[str, NDArray[Any]]:
    random = np.random.default_rng(seed)
    return {"x": random.standard_normal((1, channels, size, size), np.float32)}


def _model(name: str, build: Callable[[], nn.Module], channels: int, size: int) -> ZooModel:
    return ZooModel(name=name, build=build, inputs=partial(_inputs, channels, size), outputs=("y",))


POINTWISE = _model("convolution_1x1", pointwise, 64, 56)
SQUARE = _model("convolution_3x3", square, 128, 28)
STEM = _model("convolution_7x7", stem, 3, 224)
