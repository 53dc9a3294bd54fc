"""Architectures by name: functions that make each architecture and a batch for it.

from slipstream.forecast.trace.architectures.names import find

architecture = find("ResNet-50")
workload = trace(architecture.make, lambda: architecture.inputs(32), name="r50", samples=32)
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from torch import Tensor, nn

from slipstream.errors import UsageError
from slipstream.forecast.trace.architectures import batches, language
from slipstream.forecast.trace.architectures.classic import VGG, AlexNet
from slipstream.forecast.trace.architectures.detection import SSD300
from slipstream.forecast.trace.architectures.efficient import (
    SCALES,
    efficientnet,
    mobilenet_v2,
    mobilenet_v3_large,
)
from slipstream.forecast.trace.architectures.encoders import (
    BERT_BASE,
    BERT_LARGE,
    BertAnswers,
    BertPretraining,
    ImageTransformer,
)
from slipstream.forecast.trace.architectures.faces import IResNet, MobileFaceNet, face_training
from slipstream.forecast.trace.architectures.inception import GoogLeNet, InceptionV3
from slipstream.forecast.trace.architectures.recommendation import (
    CRITEO_LARGE,
    CRITEO_SMALL,
    DLRM,
    NeuMF,
    WideDeep,
)
from slipstream.forecast.trace.architectures.resnet import resnet
from slipstream.forecast.trace.architectures.translation import (
    TRANSFORMER_BIG,
    TRANSFORMER_XL_BASE,
    TRANSFORMER_XL_LARGE,
    TransformerXL,
    Translator,
)

Samples = Literal["image", "sequence", "token", "example"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """A published architecture.

    Args:
        name: Name that is printed in tables.
        aliases: Other names.
        make: Function that makes the module; keywords such as num_classes=10 change the module.
        inputs: Function that takes a number of samples and makes the arguments of one call of the
            module; keywords such as length=512 change the arguments.
        samples_are: Unit in which batches are counted, such as "image"; an "example" is a row of a
            table.
        note: Peculiarity of the architecture, printed in tables (default none).
    """

    name: str
    aliases: tuple[str, ...]
    make: Callable[..., nn.Module]
    inputs: Callable[..., tuple[Tensor, ...]]
    samples_are: Samples
    note: str = ""


def find(text: str) -> Architecture:
    """Return the architecture with a given name or alias.

    Args:
        text: Name; case, spaces, "-" and "_" do not matter.

    Raises:
        UsageError: No architecture has that name or alias.
    """
    architecture = _KEYS.get(_key(text))
    if architecture is not None:
        return architecture
    keys = difflib.get_close_matches(_key(text), _KEYS, n=6, cutoff=0.5)
    nearest = ", ".join(dict.fromkeys(_KEYS[key].name for key in keys)) or ", ".join(TABLE)
    raise UsageError(f"no architecture is named {text!r}; the nearest are: {nearest}")


def _key(text: str) -> str:
    return "".join(c for c in text.lower() if c not in "-_ ")


def _image(
    name: str, make: Callable[..., nn.Module], *aliases: str, side: int = 224, note: str = ""
) -> Architecture:
    return Architecture(name, aliases, make, partial(batches.images, side=side), "image", note)


def _convolutional() -> Iterable[Architecture]:
    yield _image("alexnet", AlexNet, note="one tower")
    for depth in (11, 16, 19):
        yield _image(f"vgg{depth}", partial(VGG, depth), note="no batch norm")
    yield _image("vgg19-22k", partial(VGG, 19, num_classes=21841), note="ImageNet-22K")
    yield _image("googlenet", GoogLeNet, "inception-v1", note="no auxiliary heads; batch norms")
    yield _image("inception-v3", InceptionV3, side=299, note="no auxiliary head")
    for depth in (18, 34):
        yield _image(f"resnet{depth}", partial(resnet, f"resnet{depth}"))
    for depth in (50, 101, 152):
        make = partial(resnet, f"resnet{depth}")
        yield _image(f"resnet{depth}", make, f"resnet{depth}-v1.5", note="v1.5: strides in the 3x3")
        first = partial(make, stride_first=True)
        yield _image(f"resnet{depth}-v1", first, note="v1: strides in the first 1x1")
    yield _image("resnet26d", partial(resnet, "resnet26d"))
    for name in ("resnext101-32x4d", "se-resnext101-32x4d"):
        yield _image(name, partial(resnet, name))
    yield _image("mobilenet-v2", mobilenet_v2)
    yield _image("mobilenet-v3-large", mobilenet_v3_large, "mobilenet-v3")
    for number, scale in enumerate(SCALES):
        make, side = partial(efficientnet, number), scale.side
        yield _image(f"efficientnet-b{number}", make, side=side)
        wide = partial(make, wide_squeeze=True)
        yield _image(f"efficientnet-widese-b{number}", wide, side=side, note="NVIDIA's version")
    note = "NVIDIA's version: ResNet-50 up to conv4"
    yield _image("ssd300", SSD300, "ssd300-resnet50", side=300, note=note)


def _vision_transformers() -> Iterable[Architecture]:
    for width, letters in (("tiny", "ti"), ("small", "s"), ("base", "b"), ("large", "l")):
        for patch in (16, 32):
            make = partial(ImageTransformer, width, patch)
            yield _image(f"vit-{width}-{patch}", make, f"vit-{letters}/{patch}")


def _faces() -> Iterable[Architecture]:
    for name, network, width, aliases in (
        ("face-r50", partial(IResNet, 50), 512, ("iresnet50", "arcface-r50")),
        ("face-r100", partial(IResNet, 100), 512, ("iresnet100", "arcface-r100", "r100")),
        ("face-y1", MobileFaceNet, 128, ("mobilefacenet", "arcface-y1", "y1")),
    ):
        make = partial(face_training, network, embedding=width)
        note = "with its softmax over 85742 classes"
        yield Architecture(name, aliases, make, batches.faces, "image", note)


def _encoders() -> Iterable[Architecture]:
    for width, size in (("base", BERT_BASE), ("large", BERT_LARGE)):
        make = partial(BertPretraining, size)
        for length, predictions in ((128, 20), (512, 80)):
            aliases = (f"bert-{width}", f"bert-{width}-pretraining") if length == 128 else ()
            name = f"bert-{width}-seq{length}"
            yield _text(name, make, batches.masked, length, *aliases, predictions=predictions)
        answers = partial(BertAnswers, size)
        yield _text(f"bert-{width}-squad", answers, batches.questions, 384)


def _text(
    name: str,
    make: Callable[..., nn.Module],
    inputs: Callable[..., tuple[Tensor, ...]],
    length: int,
    *aliases: str,
    **more: Any,
) -> Architecture:
    note = f"{length} tokens of a sequence"
    batch = partial(inputs, length=length, **more)
    return Architecture(name, aliases, make, batch, "sequence", note)


def _languages() -> Iterable[Architecture]:
    for name, size in language.SIZES.items():
        make = partial(language.language_model, name)
        yield _text(name, make, batches.tokens, size.positions)
    big = partial(Translator, TRANSFORMER_BIG)
    yield Architecture(
        "transformer-big", ("transformer",), big, batches.translations, "token",
        "WMT14; the batch is in tokens of one language",
    )  # fmt: skip
    for name, size, shrink in (
        ("base", TRANSFORMER_XL_BASE, 1),
        ("large", TRANSFORMER_XL_LARGE, 4),
    ):
        aliases = ("transformer-xl",) if name == "base" else ()
        yield Architecture(
            f"transformer-xl-{name}", aliases, partial(TransformerXL, size, shrink=shrink),
            partial(batches.remembered, size=size), "sequence",
            f"WikiText-103, {size.positions} tokens of a sequence and as many of memory; a fixed"
            " share of the tokens is in the tails of the softmax",
        )  # fmt: skip


def _recommendations() -> Iterable[Architecture]:
    for suffix, rows in (("small", CRITEO_SMALL), ("large", CRITEO_LARGE)):
        make, batch = partial(DLRM, rows), partial(batches.clicks, fields=len(rows))
        note = "Criteo Terabyte as NVIDIA prepares it; dense gradients of embeddings"
        yield Architecture(f"dlrm-{suffix}", (), make, batch, "example", note)
    note = "Criteo as DLPerf prepares it; dense gradients of embeddings"
    yield Architecture("wide-deep", ("wdl",), WideDeep, batches.wide_clicks, "example", note)
    note = "MovieLens 20M"
    yield Architecture("ncf", ("neumf",), NeuMF, batches.ratings, "example", note)


TABLE: Mapping[str, Architecture] = {
    architecture.name: architecture
    for architecture in (
        *_convolutional(),
        *_vision_transformers(),
        *_faces(),
        *_encoders(),
        *_languages(),
        *_recommendations(),
    )
}

_KEYS = {
    _key(name): architecture
    for architecture in TABLE.values()
    for name in (architecture.name, *architecture.aliases)
}
