"""The eight networks that `slipstream bench infer` measures, with random weights.

The networks are written after their papers, in plain PyTorch, for a batch of one sample.
`torch.onnx.export(..., dynamo=False, opset_version=17)` can export each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray

from slipstream.bench.zoo import bert, classifiers, detector, stylegan, vit
from slipstream.bench.zoo.layers import IMAGE_SIZE, random_image


@dataclass(frozen=True, kw_only=True, slots=True)
class ZooModel:
    """A network and its inputs.

    Args:
        name: Name on the command line and in tables.
        build: Function that makes the network in eval mode, always with the same weights.
        inputs: Function that returns, for a seed, the inputs by name, in the order of the network's
            parameters.
        outputs: Names of the outputs, in the order in which the network returns them.
    """

    name: str
    build: Callable[[], torch.nn.Module]
    inputs: Callable[[int], Mapping[str, NDArray[Any]]]
    outputs: tuple[str, ...]


def _images(size: int) -> Callable[[int], Mapping[str, NDArray[Any]]]:
    return lambda seed: {"image": random_image(seed, size)}


def _classifier(name: str, build: Callable[[], torch.nn.Module]) -> ZooModel:
    return ZooModel(name=name, build=build, inputs=_images(IMAGE_SIZE), outputs=("logits",))


_MODELS = (
    _classifier("resnet50", classifiers.resnet50),
    _classifier("resnet26d", classifiers.resnet26d),
    _classifier("vit_small", vit.vit_small),
    _classifier("mobilenetv3_large", classifiers.mobilenetv3_large),
    _classifier("efficientnet_b0", classifiers.efficientnet_b0),
    ZooModel(
        name="bert_base",
        build=bert.bert_base,
        inputs=bert.sentence,
        outputs=("last_hidden_state", "pooled"),
    ),
    ZooModel(
        name="detector",
        build=detector.detector,
        inputs=_images(detector.SIZE),
        outputs=("boxes",),
    ),
    ZooModel(name="stylegan", build=stylegan.stylegan, inputs=stylegan.latent, outputs=("image",)),
)

ZOO: Mapping[str, ZooModel] = {model.name: model for model in _MODELS}
