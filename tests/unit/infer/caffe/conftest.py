"""Builders of Caffe networks and their files, and the results of OpenCV's own reader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from slipstream.infer.engines.onnxruntime import plain_session
from slipstream.infer.graph.graph import Graph
from slipstream.infer.graph.onnx_file import to_model
from slipstream.infer.importers.caffe import read_caffe

Array = NDArray[np.float32]
Run = Callable[..., dict[str, Array]]
TOLERANCE = 2e-5  # of the largest element

# ---- files ---------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def message(number: int, *parts: bytes) -> bytes:
    data = b"".join(parts)
    return varint(number << 3 | 2) + varint(len(data)) + data


def blob(array: Array, *, legacy: bool = False) -> bytes:
    data = message(5, array.astype("<f4").tobytes())
    if legacy:
        shape = (1,) * (4 - array.ndim) + array.shape
        return (
            b"".join(varint(place << 3) + varint(size) for place, size in enumerate(shape, 1))
            + data
        )
    return data + message(7, message(1, *map(varint, array.shape)))


def caffemodel(weights: dict[str, list[Array]], *, legacy: bool = False) -> bytes:
    """Encode a NetParameter; the older form has blobs of four dimensions and types as numbers."""
    layer, name, blobs = (2, 4, 6) if legacy else (100, 1, 7)
    found = message(1, b"tested")
    for key, arrays in weights.items():
        parts = [message(blobs, blob(array, legacy=legacy)) for array in arrays]
        found += message(layer, message(name, key.encode()), *parts)
    return found


@dataclass
class Net:
    """A network under construction: its text, its weights, and the shapes of its inputs."""

    seed: int = 0
    text: str = 'name: "tested"\n'
    weights: dict[str, list[Array]] = field(default_factory=dict)
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    channels: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def input(self, name: str, *shape: int) -> str:
        dims = " ".join(f"dim: {size}" for size in shape)
        layer = f'name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }}'
        self.text += f"layer {{ {layer} }}\n"
        self.inputs[name] = shape
        self.channels[name] = shape[1]
        return name

    def add(
        self,
        kind: str,
        bottoms: str | Sequence[str],
        options: str = "",
        *shapes: Sequence[int],
        tops: Sequence[str] | None = None,
        name: str = "",
    ) -> str:
        """Add a layer, with random weights of these shapes."""
        name = name or f"layer{self.text.count('layer {')}"
        bottoms = [bottoms] if isinstance(bottoms, str) else bottoms
        tops = tops or [name]
        lines = [f'bottom: "{item}"' for item in bottoms] + [f'top: "{item}"' for item in tops]
        self.text += f'layer {{ name: "{name}" type: "{kind}" {" ".join(lines)} {options} }}\n'
        if shapes:
            self.weights[name] = [self.drawn(shape) for shape in shapes]
        return tops[0]

    def drawn(self, shape: Sequence[int]) -> Array:
        scale = np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else 2
        return (self.random.standard_normal(shape) / scale).astype(np.float32)

    def write(self, folder: Path) -> tuple[Path, Path]:
        (folder / "net.prototxt").write_text(self.text)
        (folder / "net.caffemodel").write_bytes(self.binary())
        return folder / "net.prototxt", folder / "net.caffemodel"

    def binary(self, *, legacy: bool = False) -> bytes:
        """Return the caffemodel; it always has a layer, because one without layers is refused."""
        return caffemodel(self.weights or {"none": [np.ones(1, np.float32)]}, legacy=legacy)

    def run(self, graph: Graph, feeds: dict[str, Array]) -> dict[str, Array]:
        return run(graph, feeds)

    def opencv(
        self, files: tuple[Path, Path], feeds: dict[str, Array], outputs: Sequence[str]
    ) -> list[Array]:
        return opencv(files, feeds, outputs)

    def feeds(self) -> dict[str, Array]:
        return {
            name: self.random.standard_normal(shape).astype(np.float32)
            for name, shape in self.inputs.items()
        }


def run(graph: Graph, feeds: dict[str, Array]) -> dict[str, Array]:
    return dict(plain_session(to_model(graph).SerializeToString(), 1).run(feeds))


def opencv(
    files: tuple[Path, Path], feeds: dict[str, Array], outputs: Sequence[str]
) -> list[Array]:
    net = cv2.dnn.readNetFromCaffe(*map(str, files))
    net.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
    net.enableFusion(False)
    for name, array in feeds.items():
        net.setInput(array, name)
    return [np.array(item) for item in net.forward(list(outputs))]


@pytest.fixture(scope="session")
def new_net() -> type[Net]:
    """Return a function that makes an empty network."""
    return Net


@pytest.fixture(scope="session")
def one() -> Callable[..., Net]:
    """Return a function that makes a network of one layer, "layer1", on the input "data"."""

    def make(
        kind: str, options: str = "", *shapes: Sequence[int], shape: Sequence[int] = (2, 6, 7, 9)
    ) -> Net:
        net = Net(len(options))
        net.add(kind, net.input("data", *shape), options, *shapes)
        return net

    return make


@pytest.fixture
def computed(tmp_path) -> Callable[..., dict[str, Array]]:
    """Return a function that imports and runs a network, and may compare its only output."""

    def compute(
        net: Net,
        right: Callable[[Array], Array] | None = None,
        *,
        feeds: dict[str, Array] | None = None,
    ) -> dict[str, Array]:
        graph, _ = read_caffe(*net.write(tmp_path), {})
        feeds = feeds or net.feeds()
        found = run(graph, feeds)
        if right is not None:
            (only,) = found.values()
            close(only, np.asarray(right(feeds["data"]), np.float32))
        return found

    return compute


@pytest.fixture
def same(tmp_path) -> Callable[..., dict[str, Array]]:
    """Return a function that imports a network and compares its outputs with OpenCV's."""

    def compare(net: Net, feeds: dict[str, Array] | None = None) -> dict[str, Array]:
        files = net.write(tmp_path)
        graph, _ = read_caffe(*files, {})
        feeds = feeds or net.feeds()
        found = run(graph, feeds)
        for name, right in zip(graph.outputs, opencv(files, feeds, graph.outputs), strict=True):
            close(found[name], right)
        return found

    return compare


def close(found: Array, right: Array) -> None:
    assert found.shape == right.shape
    room = TOLERANCE * max(float(np.abs(right).max()), 1e-3)
    np.testing.assert_allclose(found, right, rtol=0, atol=room)
