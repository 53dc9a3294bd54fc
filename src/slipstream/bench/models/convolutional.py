"""Convolutional networks for images: VGG16 and the ResNets with bottlenecks.

Sources: Simonyan and Zisserman, arXiv 1409.1556; He et al., arXiv 1512.03385. The ResNets have the
stride in the 3 x 3 convolution, as in common implementations. The networks have 1,000 classes and
images of 224 x 224 pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slipstream.bench.models.layers import (
    ModelLayer,
    ReplayModel,
    convolution,
    linear,
    normalisation,
)

CLASSES = 1000
IMAGE = "an image of 224 x 224"


def normalised_convolution(
    name: str, channels: tuple[int, int], kernel: tuple[int, int], output: int
) -> Iterator[ModelLayer]:
    """Yield a convolution without bias, and then its batch normalisation.

    Args:
        name: Name of the convolution and its normalisation.
        channels: Pair of the number of input channels and the number of output channels.
        kernel: Height and width of the kernel.
        output: Height and width of the output in pixels.
    """
    yield convolution(f"{name}.conv", channels, kernel, output)
    yield normalisation(f"{name}.bn", channels[1])


def vgg16() -> ReplayModel:
    """Return VGG16 without batch normalisation, with 138,357,544 parameters."""
    layers: list[ModelLayer] = []
    channels = 3
    for stage, (width, depth) in enumerate([(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]):
        for index in range(depth):
            name = f"conv{stage + 1}_{index + 1}"
            layers.append(convolution(name, (channels, width), (3, 3), 224 >> stage, bias=True))
            channels = width
    layers.append(linear("fc6", (channels * 7 * 7, 4096)))
    layers.append(linear("fc7", (4096, 4096)))
    layers.append(linear("fc8", (4096, CLASSES)))
    return ReplayModel(name="vgg16", layers=tuple(layers), batch=64, sample=IMAGE)


def resnet50() -> ReplayModel:
    """Return ResNet-50 with 25,557,032 parameters in 161 tensors."""
    return _resnet("resnet50", [3, 4, 6, 3])


def resnet152() -> ReplayModel:
    """Return ResNet-152 with 60,192,808 parameters."""
    return _resnet("resnet152", [3, 8, 36, 3])


def _resnet(name: str, depths: Sequence[int]) -> ReplayModel:
    layers = list(normalised_convolution("stem", (3, 64), (7, 7), 112))
    channels = 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for index in range(depth):
            halves = stage > 0 and index == 0
            block = f"stage{stage + 1}.{index}"
            layers += _bottleneck(block, (channels, width), 56 >> stage, halves=halves)
            channels = 4 * width
    layers.append(linear("fc", (channels, CLASSES)))
    return ReplayModel(name=name, layers=tuple(layers), batch=64, sample=IMAGE)


def _bottleneck(
    name: str, channels: tuple[int, int], output: int, *, halves: bool
) -> Iterator[ModelLayer]:
    """Yield convolutions of 1 x 1, 3 x 3 and 1 x 1, and a projection if the shape changes."""
    channels_in, width = channels
    before = 2 * output if halves else output
    yield from normalised_convolution(f"{name}.1", (channels_in, width), (1, 1), before)
    yield from normalised_convolution(f"{name}.2", (width, width), (3, 3), output)
    yield from normalised_convolution(f"{name}.3", (width, 4 * width), (1, 1), output)
    if channels_in != 4 * width:
        yield from normalised_convolution(
            f"{name}.projection", (channels_in, 4 * width), (1, 1), output
        )
