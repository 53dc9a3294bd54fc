"""Inception-V3 without its auxiliary head, for images of 299 x 299 (Szegedy et al., 1512.00567).

A block is a set of parallel branches, and a branch is a chain of normalised convolutions. In the
tables below, a convolution is a tuple (output channels, kernel height, kernel width). If a block
halves the image, the last convolution of each branch has stride 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from slipstream.bench.models.convolutional import CLASSES, normalised_convolution
from slipstream.bench.models.layers import ModelLayer, ReplayModel, linear

Convolution = tuple[int, int, int]
Branches = Mapping[str, Sequence[Convolution]]


@dataclass(frozen=True, kw_only=True, slots=True)
class InceptionBlock:
    """Parallel branches, whose outputs are concatenated.

    Args:
        branches: Branches by name, in forward order; branch "a/b" starts at the end of branch "a".
        channels: Number of input channels and number of output channels.
        pixels: Side of the input image and side of the output image, in pixels.
    """

    branches: Branches
    channels: tuple[int, int]
    pixels: tuple[int, int]


def inception_v3() -> ReplayModel:
    """Return Inception-V3 with 23,834,568 parameters."""
    layers = list(_stem())
    for index, block in enumerate(_blocks()):
        layers += _layers(f"block{index}", block)
    layers.append(linear("fc", (2048, CLASSES)))
    return ReplayModel(
        name="inception-v3", layers=tuple(layers), batch=64, sample="an image of 299 x 299"
    )


def _stem() -> Iterator[ModelLayer]:
    yield from normalised_convolution("stem.1", (3, 32), (3, 3), 149)
    yield from normalised_convolution("stem.2", (32, 32), (3, 3), 147)
    yield from normalised_convolution("stem.3", (32, 64), (3, 3), 147)
    yield from normalised_convolution("stem.4", (64, 80), (1, 1), 73)
    yield from normalised_convolution("stem.5", (80, 192), (3, 3), 71)


def _blocks() -> Iterator[InceptionBlock]:
    for channels, pooled in [(192, 32), (256, 64), (288, 64)]:
        yield InceptionBlock(
            branches=_factored_5x5(pooled), channels=(channels, 224 + pooled), pixels=(35, 35)
        )
    yield InceptionBlock(
        branches={"3x3": [(384, 3, 3)], "double": [(64, 1, 1), (96, 3, 3), (96, 3, 3)]},
        channels=(288, 768),
        pixels=(35, 17),
    )
    for width in (128, 160, 160, 192):
        yield InceptionBlock(branches=_factored_7x7(width), channels=(768, 768), pixels=(17, 17))
    yield InceptionBlock(
        branches={
            "3x3": [(192, 1, 1), (320, 3, 3)],
            "7x7": [(192, 1, 1), (192, 1, 7), (192, 7, 1), (192, 3, 3)],
        },
        channels=(768, 1280),
        pixels=(17, 8),
    )
    for channels in (1280, 2048):
        yield InceptionBlock(branches=_expanded(), channels=(channels, 2048), pixels=(8, 8))


def _factored_5x5(pooled: int) -> Branches:
    return {
        "1x1": [(64, 1, 1)],
        "5x5": [(48, 1, 1), (64, 5, 5)],
        "double": [(64, 1, 1), (96, 3, 3), (96, 3, 3)],
        "pool": [(pooled, 1, 1)],
    }


def _factored_7x7(width: int) -> Branches:
    double = [(width, 1, 1), (width, 7, 1), (width, 1, 7), (width, 7, 1), (192, 1, 7)]
    return {
        "1x1": [(192, 1, 1)],
        "7x7": [(width, 1, 1), (width, 1, 7), (192, 7, 1)],
        "double": double,
        "pool": [(192, 1, 1)],
    }


def _expanded() -> Branches:
    return {
        "1x1": [(320, 1, 1)],
        "3x3": [(384, 1, 1)],
        "3x3/wide": [(384, 1, 3)],
        "3x3/high": [(384, 3, 1)],
        "double": [(448, 1, 1), (384, 3, 3)],
        "double/wide": [(384, 1, 3)],
        "double/high": [(384, 3, 1)],
        "pool": [(192, 1, 1)],
    }


def _layers(name: str, block: InceptionBlock) -> Iterator[ModelLayer]:
    before, after = block.pixels
    for branch, chain in block.branches.items():
        channels = (
            block.branches[branch.split("/")[0]][-1][0] if "/" in branch else block.channels[0]
        )
        for index, (width, height, breadth) in enumerate(chain):
            pixels = after if index == len(chain) - 1 else before
            yield from normalised_convolution(
                f"{name}.{branch}.{index}", (channels, width), (height, breadth), pixels
            )
            channels = width
