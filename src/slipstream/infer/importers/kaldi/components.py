"""Kaldi's components, which process each frame of a value of the shape (1, frames, dim).

The classes in https://github.com/kaldi-asr/kaldi/tree/master/src/nnet3 describe the components.
Components are imported in test mode: dropout does nothing, and batch norms use stored statistics.
"""

# NumPy's stubs do not state all types.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array
from slipstream.infer.importers.builder import Builder
from slipstream.infer.importers.kaldi.model import COMPOSITE, Component

SQUARED_NORM_FLOOR = 2.0**-66  # kSquaredNormFloor of Kaldi's NormalizeComponent
AFFINE = ("AffineComponent", "NaturalGradientAffineComponent", "FixedAffineComponent")
TDNN = "TdnnComponent"
MOST_DIMS = 100_000  # a limit for damaged files, chosen by hand


class Layers:
    """A builder that adds components to a graph.

    If a component is applied several times, as in cycles, its constants are added only once.
    """

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self._constants: dict[tuple[str, str], str] = {}

    def constant(self, component: Component, name: str, make: Callable[[], npt.ArrayLike]) -> str:
        """Return the name of a component's constant; the first call adds the array of `make()`."""
        key = (component.name, name)
        if key not in self._constants:
            self._constants[key] = self.builder.constant(name, make())
        return self._constants[key]

    def apply(self, component: Component, x: str) -> str:
        """Apply a component to a value of the shape (1, frames, dim)."""
        self.builder.where = component.title
        return KINDS[component.kind](self, component, x)

    def cut(self, x: str, begin: int, end: int, axis: int) -> str:
        """Cut a range out of an axis, which is 1 for frames and 2 for dimensions."""
        if (begin, end) == (0, self.builder.shape(x)[axis]):
            return x
        tables = (("starts", begin), ("ends", end), ("axes", axis))
        names = [self.shared(name, value) for name, value in tables]
        return self.builder.add("Slice", x, *names)

    def shared(self, name: str, value: int) -> str:
        """Return the name of a constant with one integer; all nodes share this constant."""
        key = ("", str(value))
        if key not in self._constants:
            self._constants[key] = self.builder.constant(name, np.asarray([value], np.int64))
        return self._constants[key]


Convert = Callable[[Layers, Component, str], str]


def weights(component: Component) -> tuple[Array, Array]:
    """Return the matrix, with one row for each output, and the bias, which may be empty."""
    if component.kind == "LinearComponent":
        return component.array("Params"), np.zeros(0, np.float32)
    matrix, bias = component.array("LinearParams"), component.array("BiasParams")
    if bias.size not in (0, matrix.shape[0]):
        raise UsageError(
            f"{component.title}: it has {bias.size} biases; allowed: 0 or {matrix.shape[0]}"
        )
    return matrix, bias


def affine(layers: Layers, component: Component, x: str) -> str:
    """Multiply every frame by the matrix and add the bias."""
    matrix, bias = weights(component)
    transposed = layers.constant(component, "weight", lambda: np.transpose(matrix))
    result = layers.builder.add("MatMul", x, transposed)
    if not bias.size:
        return result
    return layers.builder.add("Add", result, layers.constant(component, "bias", lambda: bias))


def _unary(op: str) -> Convert:
    return lambda layers, component, x: layers.builder.add(op, x)


def _softmax(op: str) -> Convert:
    return lambda layers, component, x: layers.builder.add(op, x, axis=2)


def _same(layers: Layers, component: Component, x: str) -> str:
    del layers, component
    return x


def _dims(layers: Layers, component: Component, x: str, array: Array) -> Array:
    """Repeat an array, stored for one block of dimensions, until it covers all dimensions."""
    dim = layers.builder.shape(x)[2]
    if not array.size or dim % array.size:
        raise UsageError(
            f"{component.title}: it has {array.size} numbers, which do not divide {dim} dimensions"
        )
    return np.tile(array, dim // array.size)


def _scaled(op: str, token: str) -> Convert:
    def convert(layers: Layers, component: Component, x: str) -> str:
        array = component.array(token)
        name = layers.constant(component, token, lambda: _dims(layers, component, x, array))
        return layers.builder.add(op, x, name)

    return convert


def _scale_and_offset(layers: Layers, component: Component, x: str) -> str:
    return _scaled("Add", "Offsets")(
        layers, component, _scaled("Mul", "Scales")(layers, component, x)
    )


def _batch_norm(layers: Layers, component: Component, x: str) -> str:
    mean, variance = component.array("StatsMean"), component.array("StatsVar")
    if mean.size != variance.size or not component.number("Count", 0) > 0:
        raise UsageError(f"{component.title}: it has no statistics yet; train the network first")
    floored = np.maximum(variance, 0) + component.number("Epsilon", 1e-3)
    scale = component.number("TargetRms", 1.0) / np.sqrt(floored)

    def repeated(array: Array) -> Callable[[], Array]:
        return lambda: _dims(layers, component, x, array)

    scaled = layers.builder.add("Mul", x, layers.constant(component, "scale", repeated(scale)))
    offset = layers.constant(component, "offset", repeated(-mean * scale))
    return layers.builder.add("Add", scaled, offset)


def _normalize(layers: Layers, component: Component, x: str) -> str:
    """Divide each block of dimensions in each frame by the block's root mean square."""
    builder = layers.builder
    _, frames, dim = builder.shape(x)
    block = int(component.number("BlockDim", dim))
    target = component.number("TargetRms", 1.0)
    if block < 1 or dim % block or not target > 0:
        raise UsageError(
            f"{component.title}: blocks of {block} do not divide {dim} dimensions, or TargetRms"
            f" {target} is not positive"
        )
    shape = layers.constant(
        component, f"blocks{frames}", lambda: np.asarray([1, frames, -1, block])
    )
    blocks = builder.add("Reshape", x, shape)
    mean = builder.add("ReduceMean", builder.add("Mul", blocks, blocks), axes=[3])
    floor = layers.constant(component, "floor", lambda: SQUARED_NORM_FLOOR * target**2)
    deviation = builder.add("Sqrt", builder.add("Max", mean, floor))
    rms = layers.constant(component, "rms", lambda: target)
    result = builder.add("Mul", builder.add("Div", blocks, deviation), rms)
    if component.values.get("AddLogStddev"):
        result = builder.add("Concat", result, builder.add("Log", deviation), axis=3)
    shape_of_result = layers.constant(
        component, f"frames{frames}", lambda: np.asarray([1, frames, -1])
    )
    return builder.add("Reshape", result, shape_of_result)


def _permute(layers: Layers, component: Component, x: str) -> str:
    columns = component.array("ColumnMap")
    if sorted(columns.tolist()) != list(range(layers.builder.shape(x)[2])):
        raise UsageError(
            f"{component.title}: its ColumnMap is no permutation of its input's dimensions"
        )
    name = layers.constant(component, "columns", lambda: columns)
    return layers.builder.add("Gather", x, name, axis=2)


def _blocks(op: str) -> Convert:
    """Return a rule that combines blocks of the input by `op`.

    Each block has the size of the output.
    """

    def convert(layers: Layers, component: Component, x: str) -> str:
        builder = layers.builder
        dim, input_dim = component.integer("OutputDim"), builder.shape(x)[2]
        if dim < 1 or input_dim % dim:
            raise UsageError(
                f"{component.title}: the output's {dim} dimensions do not divide the input's"
                f" {input_dim}"
            )
        parts = [layers.cut(x, begin, begin + dim, 2) for begin in range(0, input_dim, dim)]
        result = parts[0]
        for part in parts[1:]:
            result = builder.add(op, result, part)
        return _times(layers, component, result, component.number("Scale", 1.0))

    return convert


def _times(layers: Layers, component: Component, x: str, factor: float) -> str:
    if factor == 1:
        return x
    return layers.builder.add("Mul", x, layers.constant(component, "factor", lambda: factor))


def _truncation(layers: Layers, component: Component, x: str) -> str:
    return _times(layers, component, x, component.number("Scale", 1.0))


def _lstm(layers: Layers, component: Component, x: str) -> str:
    """Compute (c, m) from (i, f, c, o, c') as an LSTM cell does.

    The inputs i, f and o are the gates, c is the new cell content, and c' is the previous cell. The
    results are the cell c and the output m. If the input has three more columns, the gates i, f and
    o are multiplied by these columns.
    """
    builder = layers.builder
    params, input_dim = component.array("Params"), builder.shape(x)[2]
    dim = params.shape[1] if params.ndim == 2 else 0
    if params.shape != (3, dim) or input_dim not in (5 * dim, 5 * dim + 3):
        raise UsageError(
            f"{component.title}: weights of the shape {params.shape} do not fit {input_dim}"
            " dimensions; allowed: 3 rows, and 5 input dimensions for each column, or 3 more"
        )

    def part(number: int) -> str:
        return layers.cut(x, number * dim, number * dim + dim, 2)

    def gate(name: str, number: int, cell: str) -> str:
        """Compute a gate (i, f or o): sigmoid(input + cell * weights of the gate)."""
        row = "ifo".index(name)
        peephole = layers.constant(component, f"weight_{name}", lambda: params[row])
        total = builder.add("Add", part(number), builder.add("Mul", cell, peephole))
        result = builder.add("Sigmoid", total)
        if input_dim == 5 * dim:
            return result
        return builder.add("Mul", result, layers.cut(x, 5 * dim + row, 5 * dim + row + 1, 2))

    previous = part(4)
    remembered = builder.add("Mul", gate("f", 1, previous), previous)
    added = builder.add("Mul", gate("i", 0, previous), builder.add("Tanh", part(2)))
    cell = builder.add("Add", remembered, added)
    output = builder.add("Mul", gate("o", 3, cell), builder.add("Tanh", cell))
    return builder.add("Concat", cell, output, axis=2)


def _composite(layers: Layers, component: Component, x: str) -> str:
    for part in component.parts:
        x = layers.apply(part, x)
    return x


KINDS: dict[str, Convert] = {
    **dict.fromkeys(AFFINE, affine),
    "BackpropTruncationComponent": _truncation,
    "BatchNormComponent": _batch_norm,
    "ClipGradientComponent": _same,
    COMPOSITE: _composite,
    "DropoutComponent": _same,
    "ElementwiseProductComponent": _blocks("Mul"),
    "FixedBiasComponent": _scaled("Add", "Bias"),
    "FixedScaleComponent": _scaled("Mul", "Scales"),
    "GeneralDropoutComponent": _same,
    "LinearComponent": affine,
    "LogSoftmaxComponent": _softmax("LogSoftmax"),
    "LstmNonlinearityComponent": _lstm,
    "NaturalGradientPerElementScaleComponent": _scaled("Mul", "Params"),
    "NoOpComponent": _same,
    "NormalizeComponent": _normalize,
    "PerElementOffsetComponent": _scaled("Add", "Offsets"),
    "PerElementScaleComponent": _scaled("Mul", "Params"),
    "PermuteComponent": _permute,
    "RectifiedLinearComponent": _unary("Relu"),
    "ScaleAndOffsetComponent": _scale_and_offset,
    "ScaleGradientComponent": _same,
    "SigmoidComponent": _unary("Sigmoid"),
    "SoftmaxComponent": _softmax("Softmax"),
    "SpecAugmentTimeMaskComponent": _same,
    "SumBlockComponent": _blocks("Add"),
    "TanhComponent": _unary("Tanh"),
    TDNN: affine,
}


def output_dim(component: Component) -> int:
    """Return the number of dimensions of a component's output.

    Raises:
        UsageError: If the number is unknown or not plausible.
    """
    dim = _output_dim(component)
    if not 1 <= dim <= MOST_DIMS:
        raise UsageError(f"{component.title}: it has {dim} dimensions; allowed: 1 to {MOST_DIMS}")
    return dim


def _output_dim(component: Component) -> int:
    if component.kind in (*AFFINE, TDNN, "LinearComponent"):
        return weights(component)[0].shape[0]
    if component.kind == COMPOSITE:
        return _output_dim(component.parts[-1])
    if component.kind == "LstmNonlinearityComponent":
        return 2 * component.array("Params").shape[-1]
    if component.kind == "NormalizeComponent":
        values = component.values
        dim = int(values.get("InputDim") or component.integer("Dim"))
        blocks = dim // max(int(values.get("BlockDim", dim)), 1)
        return dim + (blocks if values.get("AddLogStddev") else 0)
    for token in ("OutputDim", "Dim"):
        if token in component.values:
            return component.integer(token)
    for token in ("Params", "Scales", "Bias", "Offsets", "ColumnMap"):
        if token in component.values:
            return component.array(token).size
    raise UsageError(f"{component.title}: its number of dimensions is not stored")
