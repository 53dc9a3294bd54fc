"""Builders of nnet3 networks and their files, and their results by definition.

`Net.frame` evaluates one frame of one node after the other, directly by the documentation of
descriptors and components: https://kaldi-asr.org/doc/dnn3.html.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from slipstream.infer.engines.onnxruntime import plain_session
from slipstream.infer.graph.onnx_file import to_model
from slipstream.infer.importers import load_model

Array = NDArray[np.float64]
FAR = 25  # frames: more than any input here has
TOLERANCE = 2e-5  # of the largest element

# ---- files ---------------------------------------------------------------------------------------


def text_value(value: Any) -> str:
    if isinstance(value, bool):
        return "T " if value else "F "
    if isinstance(value, np.ndarray) and value.ndim == 2:
        return (
            " [\n" + "\n".join("  " + " ".join(map(repr, row.tolist())) for row in value) + " ]\n"
        )
    if isinstance(value, (np.ndarray, list)):
        return " [ " + " ".join(map(str, np.asarray(value).tolist())) + " ]\n"
    return f"{value} "


def binary_value(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"T" if value else b"F"
    if isinstance(value, int):
        return b"\4" + struct.pack("<i", value)
    if isinstance(value, float):
        return b"\4" + struct.pack("<f", value)
    if isinstance(value, list):
        return b"\4" + struct.pack(f"<i{len(value)}i", len(value), *value)
    sizes = b"".join(binary_value(size) for size in value.shape)
    name = b"FM " if value.ndim == 2 else b"FV "
    return name + sizes + value.astype("<f4").tobytes()


def written(items: list[Any], *, binary: bool) -> bytes:
    """Write tokens, which are strings that begin with "<", and values."""
    found = b""
    for item in items:
        if isinstance(item, str):
            found += item.encode() + b" "
        else:
            found += binary_value(item) if binary else text_value(item).encode()
    return found


# ---- networks ------------------------------------------------------------------------------------


@dataclass
class Net:
    """A network: nodes as lines of the configuration, components as (kind, values)."""

    seed: int = 0
    lines: list[str] = field(default_factory=list)
    components: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def input(self, name: str, dim: int) -> str:
        self.lines.append(f"input-node name={name} dim={dim}")
        return name

    def add(self, name: str, kind: str, source: str, **values: Any) -> str:
        """Add a component and a node of the same name."""
        self.components[name] = (kind, values)
        self.lines.append(f"component-node name={name} component={name} input={source}")
        return name

    def affine(self, name: str, source: str, rows: int, columns: int) -> str:
        kind = "NaturalGradientAffineComponent"
        values = {"LinearParams": self.drawn(rows, columns), "BiasParams": self.drawn(rows)}
        return self.add(name, kind, source, LearningRate=0.001, **values)

    def range(self, name: str, source: str, begin: int, dim: int) -> str:
        line = f"dim-range-node name={name} input-node={source} dim-offset={begin} dim={dim}"
        self.lines.append(line)
        return name

    def output(self, source: str, name: str = "output") -> None:
        self.lines.append(f"output-node name={name} input={source} objective=linear")

    def drawn(self, *shape: int) -> NDArray[np.float32]:
        scale = np.sqrt(shape[-1]) if len(shape) > 1 else 2
        return (self.random.standard_normal(shape) / scale).astype(np.float32)

    def data(self, *, binary: bool, priors: int = 0, transitions: bool = False) -> bytes:
        """Return the file's bytes."""
        found = b"\0B" if binary else b""
        if transitions:
            found += b"<TransitionModel> <Topology> anything \4\0\0 </Topology> </TransitionModel> "
        found += b"<Nnet3> \n" + "\n".join(self.lines).encode() + b"\n\n"
        found += written(["<NumComponents>", len(self.components)], binary=binary)
        for name, (kind, values) in self.components.items():
            found += written(["<ComponentName>", name], binary=binary)
            found += written(self._component(kind, values), binary=binary)
        found += b"</Nnet3> "
        if priors:
            rest = ["<LeftContext>", 3, "<RightContext>", 2, "<Priors>", np.ones(priors) / priors]
            found += written(rest, binary=binary)
        return found

    def _component(self, kind: str, values: dict[str, Any]) -> list[Any]:
        items: list[Any] = [f"<{kind}>"]
        for token, value in values.items():
            if token == "Parts":
                items += ["<NumComponents>", len(value)]
                items += [item for part in value for item in self._component(*part)]
            else:
                items.append(f"<{token}>")
                items += value if isinstance(value, tuple) else [value]
        return [*items, f"</{kind}>"]

    # ---- by definition ---------------------------------------------------------------------

    def output_frames(self, inputs: dict[str, dict[int, Array]], times: range) -> Array:
        """Return the frames of "output" at some times."""
        oracle = Oracle(self, inputs)
        (source,) = (line for line in self.lines if line.startswith("output-node name=output "))
        descriptor = re.search(r"input=(.*?) objective", source)[1]
        frames = [oracle.descriptor(descriptor, time) for time in times]
        assert all(frame is not None for frame in frames)
        return np.stack(frames)[None]

    def is_output_at(self, inputs: dict[str, dict[int, Array]], time: int) -> bool:
        oracle = Oracle(self, inputs)
        (source,) = (line for line in self.lines if line.startswith("output-node name=output "))
        return oracle.descriptor(re.search(r"input=(.*?) objective", source)[1], time) is not None


class Oracle:
    """Frames of nodes by definition; None if an input that they need does not exist."""

    def __init__(self, net: Net, inputs: dict[str, dict[int, Array]]) -> None:
        self.net = net
        self.inputs = inputs
        self.known: dict[tuple[str, int], Array | None] = {}
        self.nodes: dict[str, dict[str, str]] = {}
        for line in net.lines:
            kind, _, rest = line.partition(" ")
            fields = dict(re.findall(r"([\w-]+)=(.*?)(?=\s[\w-]+=|$)", rest))
            self.nodes[fields["name"]] = {**fields, "kind": kind}

    def node(self, name: str, time: int) -> Array | None:
        if abs(time) > FAR:  # there is no input
            return None
        if (name, time) not in self.known:
            self.known[name, time] = None  # a frame that needs itself does not exist
            self.known[name, time] = self._node(name, time)
        return self.known[name, time]

    def _node(self, name: str, time: int) -> Array | None:
        fields = self.nodes[name]
        if fields["kind"] == "input-node":
            return self.inputs[name].get(time)
        if fields["kind"] == "dim-range-node":
            whole, begin = self.node(fields["input-node"], time), int(fields["dim-offset"])
            return None if whole is None else whole[begin : begin + int(fields["dim"])]
        kind, values = self.net.components[fields["component"]]
        if kind == "TdnnComponent":
            found = [self.descriptor(fields["input"], time + n) for n in values["TimeOffsets"]]
            if any(frame is None for frame in found):
                return None
            result = values["LinearParams"].astype(float) @ np.concatenate(found)
            return result + (values["BiasParams"] if values["BiasParams"].size else 0)
        frame = self.descriptor(fields["input"], time)
        return None if frame is None else component(kind, values, frame)

    def descriptor(self, text: str, time: int) -> Array | None:
        text = text.strip()
        name, bracket, rest = text.partition("(")
        if not bracket:
            return self.node(text, time)
        parts = split(rest.rpartition(")")[0])
        if name == "Offset":
            return self.descriptor(parts[0], time + int(parts[1]))
        if name == "Round":
            return self.descriptor(parts[0], time // int(parts[1]) * int(parts[1]))
        if name == "ReplaceIndex":
            return self.descriptor(parts[0], int(parts[2]))
        if name == "Const":
            return np.full(int(parts[1]), float(parts[0]))
        if name == "Scale":
            frame = self.descriptor(parts[1], time)
            return None if frame is None else float(parts[0]) * frame
        found = [self.descriptor(part, time) for part in parts]
        if name == "IfDefined":
            return np.zeros(self.dim(parts[0])) if found[0] is None else found[0]
        if name == "Failover":
            return found[1] if found[0] is None else found[0]
        if any(frame is None for frame in found):
            return None
        return np.concatenate(found) if name == "Append" else np.sum(found, axis=0)

    def dim(self, text: str) -> int:
        """Return the size of a descriptor's frames."""
        name, bracket, rest = text.strip().partition("(")
        if bracket:
            parts = split(rest.rpartition(")")[0])
            sizes = [self.dim(part) for part in parts if re.match(r"\s*[A-Za-z]", part)]
            return sum(sizes) if name == "Append" else sizes[0]
        fields = self.nodes[name.strip()]
        if "dim" in fields:
            return int(fields["dim"])
        values = self.net.components[fields["component"]][1]
        if "LinearParams" in values:
            return len(values["LinearParams"])
        if "Params" in values and values["Params"].ndim == 2 and len(values["Params"]) == 3:
            return 2 * values["Params"].shape[1]
        return values.get("OutputDim") or values.get("Dim") or len(values["Params"])


def split(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return found


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def lstm(params: Array, x: Array) -> Array:
    dim = params.shape[1]
    i, f, c, o, before = (x[n * dim : n * dim + dim] for n in range(5))
    masks = x[5 * dim :] if len(x) > 5 * dim else np.ones(3)
    i = sigmoid(i + params[0] * before) * masks[0]
    f = sigmoid(f + params[1] * before) * masks[1]
    cell = f * before + i * np.tanh(c)
    o = sigmoid(o + params[2] * cell) * masks[2]
    return np.concatenate([cell, o * np.tanh(cell)])


def normalize(x: Array, block: int, target: float, log_stddev: bool) -> Array:
    found = []
    for begin in range(0, len(x), block):
        part = x[begin : begin + block]
        rms = np.sqrt((part**2).mean())
        found += [part * target / rms, [np.log(rms)] if log_stddev else []]
    return np.concatenate(found)


def component(kind: str, values: dict[str, Any], x: Array) -> Array:  # noqa: C901
    """Compute one frame of a component by definition."""

    def blocks(size: int) -> Array:
        return x.reshape(-1, size)

    def tiled(name: str) -> Array:
        return np.tile(values[name], len(x) // len(values[name]))

    match kind.removesuffix("Component").removeprefix("NaturalGradient"):
        case "Affine" | "FixedAffine":
            bias = values["BiasParams"]
            return values["LinearParams"].astype(float) @ x + (bias if bias.size else 0)
        case "Linear":
            return values["Params"].astype(float) @ x
        case "RectifiedLinear":
            return np.maximum(x, 0)
        case "Sigmoid":
            return sigmoid(x)
        case "Tanh":
            return np.tanh(x)
        case "Softmax":
            return np.exp(x) / np.exp(x).sum()
        case "LogSoftmax":
            return x - np.log(np.exp(x).sum())
        case "BatchNorm":
            deviation = np.sqrt(tiled("StatsVar") + values["Epsilon"])
            return (x - tiled("StatsMean")) / deviation * values["TargetRms"]
        case "Normalize":
            block = values.get("BlockDim", len(x))
            return normalize(x, block, values["TargetRms"], values.get("AddLogStddev", False))
        case "Permute":
            return x[values["ColumnMap"]]
        case "FixedScale":
            return x * values["Scales"]
        case "FixedBias":
            return x + values["Bias"]
        case "PerElementScale":
            return x * tiled("Params")
        case "PerElementOffset":
            return x + tiled("Offsets")
        case "ScaleAndOffset":
            return x * tiled("Scales") + tiled("Offsets")
        case "SumBlock":
            return blocks(values["OutputDim"]).sum(0) * values["Scale"]
        case "ElementwiseProduct":
            return blocks(values["OutputDim"]).prod(0)
        case "LstmNonlinearity":
            return lstm(values["Params"].astype(float), x)
        case "BackpropTruncation":
            return x * values["Scale"]
        case "Composite":
            for part in values["Parts"]:
                x = component(*part, x)
            return x
        case "NoOp" | "Dropout" | "GeneralDropout" | "SpecAugmentTimeMask" | "ClipGradient":
            return x
    raise AssertionError(kind)


# ---- fixtures ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def new_net() -> type[Net]:
    """Return a function that makes an empty network."""
    return Net


@pytest.fixture(params=["text", "binary"])
def same(request, tmp_path) -> Callable[..., tuple[int, int, int]]:
    """Return a function that imports a network as text and as binary and compares its output.

    The function returns the numbers of context frames before and after, and of output frames.
    """

    def compare(net: Net, frames: int = 12, **fixed: int) -> tuple[int, int, int]:
        path = tmp_path / "final.raw"
        path.write_bytes(net.data(binary=request.param == "binary"))
        dims = {
            n[1]: int(n[2])
            for n in map(re.compile(r"input-node name=(\S+) dim=(\d+)").match, net.lines)
            if n
        }
        shapes = {name: (1, 1 if name in fixed else frames, dim) for name, dim in dims.items()}
        imported = load_model(path, shapes=shapes)
        feeds = {
            name: net.random.standard_normal(shape).astype(np.float32)
            for name, shape in shapes.items()
        }
        found = dict(plain_session(to_model(imported.graph).SerializeToString(), 1).run(feeds))
        left, right, count = map(
            int,
            re.search(
                r"on (-?\d+) input .* and (-?\d+) after .* give (\d+) out", imported.notes[-1]
            ).groups(),
        )
        inputs = {
            name: {
                fixed.get(name, at - left): row
                for at, row in enumerate(feeds[name][0].astype(float))
            }
            for name in shapes
        }
        expected = net.output_frames(inputs, range(count))
        close(found["output"], expected)
        assert not net.is_output_at(inputs, count)
        assert not net.is_output_at(inputs, -1)
        return left, right, count

    return compare


def close(found: NDArray[np.float32], right: Array) -> None:
    assert found.shape == right.shape
    room = TOLERANCE * max(float(np.abs(right).max()), 1e-3)
    np.testing.assert_allclose(found, right, rtol=0, atol=room)
