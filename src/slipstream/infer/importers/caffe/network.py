"""The layers of a Caffe network that run at test time, with their weights."""

# NumPy's stubs do not state all types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array
from slipstream.infer.importers.caffe.text import Message, read_text
from slipstream.infer.importers.caffe.wire import Blobs, read_blobs

# The older form, `layers { type: INNER_PRODUCT }`, names types in capitals. A type that is not
# listed here gets its newer name by rule: INNER_PRODUCT becomes InnerProduct.
V1_TYPES = {
    "ABSVAL": "AbsVal",
    "ARGMAX": "ArgMax",
    "BNLL": "BNLL",
    "HDF5_DATA": "HDF5Data",
    "LRN": "LRN",
    "MVN": "MVN",
    "RELU": "ReLU",
    "SOFTMAX_LOSS": "SoftmaxWithLoss",
    "TANH": "TanH",
}
DATA_LAYERS = (
    "Input",
    "Data",
    "AnnotatedData",
    "DummyData",
    "HDF5Data",
    "ImageData",
    "MemoryData",
    "WindowData",
)
FOR_TRAINING = (
    "Accuracy",
    "DetectionEvaluate",
    "HDF5Output",
    "HingeLoss",
    "EuclideanLoss",
    "ContrastiveLoss",
    "InfogainLoss",
    "MultiBoxLoss",
    "MultinomialLogisticLoss",
    "SigmoidCrossEntropyLoss",
    "Silence",
    "SoftmaxWithLoss",
)


@dataclass(frozen=True)
class CaffeLayer:
    """A layer of a network, with its name, fields, weights, and the blobs that it reads and writes.

    `type` is the type's name in the newer file format. Names of the older format are converted.
    """

    name: str
    type: str
    bottoms: list[str]
    tops: list[str]
    message: Message
    blobs: list[Array]

    @property
    def title(self) -> str:
        """Name and type of the layer, for messages."""
        return f"{self.name} ({self.type})"

    def blob(self, index: int, shape: tuple[int, ...]) -> Array:
        """Return one of the layer's blobs of weights, reshaped to `shape`.

        Raises:
            UsageError: If the blob does not exist or has another number of elements.
        """
        if index >= len(self.blobs):
            raise UsageError(
                f"{self.title}: it needs {index + 1} blobs of weights, but the caffemodel has"
                f" {len(self.blobs)}; are the two files of one network?"
            )
        blob = self.blobs[index]
        if blob.size != math.prod(shape):
            raise UsageError(
                f"{self.title}: blob {index} of the caffemodel has the shape {blob.shape}, not"
                f" {shape}; are the two files of one network?"
            )
        return blob.reshape(shape)

    def only(self, x: list[str], count: int) -> None:
        """Raise UsageError unless the layer reads `count` blobs."""
        if len(x) != count:
            raise UsageError(f"{self.title}: it reads {len(x)} blobs; allowed: {count}")


@dataclass(frozen=True)
class CaffeNetwork:
    """A network of layers.

    Args:
        name: Name of the network.
        inputs: Input shapes by name; the shape is None if the files do not give it.
        layers: Layers that run at test time, in execution order.
        notes: Sentences for the user about the layers that are left out.
    """

    name: str
    inputs: dict[str, tuple[int, ...] | None]
    layers: list[CaffeLayer]
    notes: list[str] = field(default_factory=list[str])


def read_network(prototxt: Path, caffemodel: Path) -> CaffeNetwork:
    """Read a network from its two files; raise UsageError if a file cannot be read."""
    message = read_text(prototxt)
    all_layers = [
        layer for layer in _layers(message, read_blobs(caffemodel), str(prototxt)) if layer
    ]
    if not all_layers:
        raise UsageError(f"{prototxt}: it has no layers")
    layers = [layer for layer in all_layers if layer.type not in (*DATA_LAYERS, *FOR_TRAINING)]
    omitted = sorted({layer.title for layer in all_layers if layer.type in FOR_TRAINING})
    shapes = _net_inputs(message)
    for layer in all_layers:
        if layer.type in DATA_LAYERS:
            shapes.update(_data_shapes(layer))
    bottoms = {bottom for layer in layers for bottom in layer.bottoms}
    notes = [f"layers for training were left out: {', '.join(omitted)}"] if omitted else []
    inputs = {name: shape for name, shape in shapes.items() if name in bottoms}
    return CaffeNetwork(message.text("name", prototxt.stem), inputs, layers, notes)


def _layers(message: Message, blobs: Blobs, where: str) -> list[CaffeLayer]:
    newer, older = message.messages("layer"), message.messages("layers")
    if newer and older:
        raise UsageError(f"{where}: it has both `layer` and `layers`; allowed: one of the two")
    return [
        _layer(item, blobs, where, is_older=bool(older))
        for item in [*newer, *older]
        if _is_used(item, message.message("state"))
    ]


def _layer(message: Message, blobs: Blobs, where: str, *, is_older: bool) -> CaffeLayer:
    name, kind = message.text("name"), message.text("type")
    if not kind:
        raise UsageError(
            f"{where}: layer {name!r} has no type; files of the oldest form cannot be read"
        )
    if is_older:
        words = "".join(word.capitalize() for word in kind.split("_"))
        kind = V1_TYPES.get(kind, words)
    message.where = f"{name} ({kind})"
    return CaffeLayer(
        name or kind,
        kind,
        message.texts("bottom"),
        message.texts("top"),
        message,
        blobs.get(name, []),
    )


def _is_used(layer: Message, state: Message) -> bool:
    """Return whether the layer's rules include it at test time."""
    included, excluded = layer.messages("include"), layer.messages("exclude")
    if included:
        return any(_meets(rule, state) for rule in included)
    return not any(_meets(rule, state) for rule in excluded)


def _meets(rule: Message, state: Message) -> bool:
    level, stages = state.integer("level", 0), state.texts("stage")
    return (rule.choice("phase", ("TRAIN", "TEST")) == "TEST" or not rule.has("phase")) and (
        rule.integer("min_level", level) <= level <= rule.integer("max_level", level)
        and all(stage in stages for stage in rule.texts("stage"))
        and not any(stage in stages for stage in rule.texts("not_stage"))
    )


def _net_inputs(message: Message) -> dict[str, tuple[int, ...] | None]:
    names = message.texts("input")
    shapes = [tuple(item.integers("dim")) for item in message.messages("input_shape")]
    sizes = message.integers("input_dim")
    if not shapes:
        shapes = [tuple(sizes[at : at + 4]) for at in range(0, len(sizes), 4)]
    return _by_name(names, shapes)


def _data_shapes(layer: CaffeLayer) -> Mapping[str, tuple[int, ...] | None]:
    message = layer.message
    if layer.type == "MemoryData":
        options = message.message("memory_data_param")
        fields = ("batch_size", "channels", "height", "width")
        return _by_name(layer.tops, [tuple(options.integer(name, 0) for name in fields)])
    if layer.type == "DummyData":
        options = message.message("dummy_data_param")
        sizes = [options.integers(name) for name in ("num", "channels", "height", "width")]
        if any(sizes):
            return _by_name(layer.tops, list(zip(*sizes, strict=False)))
    else:
        options = message.message("input_param")
    shapes = [tuple(item.integers("dim")) for item in options.messages("shape")]
    return _by_name(layer.tops, shapes * len(layer.tops) if len(shapes) == 1 else shapes)


def _by_name(names: list[str], shapes: list[tuple[int, ...]]) -> dict[str, tuple[int, ...] | None]:
    padded = [*shapes, *[None] * len(names)]
    return dict(zip(names, padded, strict=False))
