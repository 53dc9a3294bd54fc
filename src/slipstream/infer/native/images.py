"""Plan operators that read whole images, or windows of images.

They are pooling, means over rows and columns, SqueezeExcite, and Pixels, which turns the bytes of a
decoded image into normalised numbers.
"""

# NumPy's stubs leave the element types of arrays open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slipstream import _kernels as kernels
from slipstream.errors import UnsupportedError
from slipstream.infer.graph.graph import Array, Node
from slipstream.infer.native.epilogue import epilogue
from slipstream.infer.native.formats import Bytes
from slipstream.infer.native.lowering import ONE, Lowering, convert
from slipstream.infer.native.memory import Border
from slipstream.infer.native.operands import constant_of, operands_of, window_of
from slipstream.infer.native.pointwise import gate_by
from slipstream.infer.native.stages import ACTIVATIONS, Stage, Tail


def squeeze_excite(lowering: Lowering, stage: Stage) -> None:
    """Plan SqueezeExcite, which multiplies every channel of its input by a factor.

    Two small linear layers compute the factors from the means of the channels.
    """
    node = stage.node
    source, output = node.inputs[0], stage.output
    batch, channels = lowering.shape(source)[:2]
    mean = _mean(lowering, source, f"{output}:mean", (batch, channels))
    hidden = f"{output}:hidden"
    squeeze, excite = (constant_of(lowering, node, i).astype(np.float32) for i in (1, 3))
    _small_linear(
        lowering, mean, hidden, squeeze, constant_of(lowering, node, 2), node, "activation"
    )
    _small_linear(
        lowering, hidden, f"{output}:gate", excite, constant_of(lowering, node, 4), node, "gate"
    )
    if _reader_multiplies(lowering, source, output):
        lowering.gates[output] = f"{output}:gate"
        lowering.view(output, source, lambda location: location)
    else:
        gate_by(lowering, source, f"{output}:gate", output)


def _reader_multiplies(lowering: Lowering, source: str, output: str) -> bool:
    """Tell whether the node that reads the result should multiply its weights by the factors.

    This is cheaper than multiplying `source` by the factors, if only a 1 x 1 convolution reads the
    result, and if the convolution has at most as many output channels as `source` has pixels.
    """
    graph, format_ = lowering.graph, lowering.format(source)
    readers = graph.uses().get(output, [])
    if len(readers) != 1 or readers[0].op != "Conv" or output in graph.outputs:
        return False
    weights = graph.constants.get(readers[0].inputs[1])
    batch, _, rows, columns = lowering.shape(source)
    if weights is None or weights.shape[2:] != (1, 1) or readers[0].get("group", 1) != 1:
        return False
    if isinstance(format_, Bytes) or format_ != lowering.formats.get(output):
        return False
    padded = any(readers[0].get("pads", [])) or readers[0].get("auto_pad", "NOTSET") != "NOTSET"
    return batch == 1 and len(weights) <= rows * columns and not padded


def _small_linear(
    lowering: Lowering, source: str, output: str, matrix: Array, bias: Array, node: Node, which: str
) -> None:
    batch = lowering.shape(source)[0]
    lowering.read(source)
    lowering.write(output, (batch, matrix.shape[1]), floats=True)
    tail = _gate_tail(node, which)
    end = epilogue(tail, np.ones(matrix.shape[1], np.float32), bias.ravel(), None, None)
    rows = np.ascontiguousarray(matrix.T).reshape(matrix.shape[1], 1, 1, -1)

    def emit(at: Lowering) -> None:
        at.program.convolution(operands_of(at, source, output, tail), ONE, rows, end)

    lowering.emit_later(output, emit)


def _gate_tail(node: Node, which: str) -> Tail:
    """Return the activation of a layer of SqueezeExcite.

    The rewrite that makes SqueezeExcite nodes accepts HardSigmoid only with the slope 1 / 6 and the
    offset 1 / 2.
    """
    kind = str(node.get(which))
    if kind == "Relu":
        return Tail(low=0.0)
    if kind not in ACTIVATIONS:
        raise UnsupportedError(
            f"the native engine has SqueezeExcite with {which} Relu or one of "
            f"{', '.join(ACTIVATIONS)}, not {kind!r}"
        )
    return Tail(activation=ACTIVATIONS[kind], alpha=1 / 6, beta=0.5)


def _mean(lowering: Lowering, source: str, output: str, shape: Sequence[int]) -> str:
    lowering.read(source)
    lowering.write(output, shape, floats=True)
    format_ = lowering.format(source)
    scale, zero = 1.0, 0.0
    if isinstance(format_, Bytes):
        scale, zero = format_.scale, float(format_.zero)

    def emit(at: Lowering) -> None:
        at.program.global_mean(at.tensor(source), at.tensor(output), scale, zero)

    lowering.emit_later(output, emit)
    return output


def global_mean(lowering: Lowering, stage: Stage) -> None:
    """Plan GlobalAveragePool, or ReduceMean over rows and columns."""
    node = stage.node
    if len(lowering.shape(node.inputs[0])) != 4:
        shape = lowering.shape(node.inputs[0])
        raise UnsupportedError(f"{node.op} of the native engine reads images (4-D), not {shape}")
    if node.op == "ReduceMean":
        axes = node.get("axes")
        if axes is None and len(node.inputs) > 1:
            axes = constant_of(lowering, node, 1).tolist()
        if sorted(axis % 4 for axis in axes or ()) != [2, 3]:
            raise UnsupportedError(
                f"the native engine has ReduceMean over axes 2 and 3, not {axes}"
            )
    shape = lowering.shape(stage.output)
    if lowering.formats.get(stage.output) is None:
        _mean(lowering, node.inputs[0], stage.output, shape)
        return
    mean = _mean(lowering, node.inputs[0], f"{stage.output}:float", shape)
    _converted(lowering, mean, stage.output)


def _converted(lowering: Lowering, source: str, output: str) -> None:
    lowering.read(source)
    lowering.write(output)

    def emit(at: Lowering) -> None:
        convert(at, at.location(source), at.location(output))

    lowering.emit_later(output, emit)


def normalise(lowering: Lowering, stage: Stage) -> None:
    """Plan Pixels, which turns the bytes of a decoded image into normalised numbers.

    The numbers are stored in the format of the output.
    """
    node = stage.node
    inputs = list(lowering.graph.inputs)
    shape = lowering.shape(node.inputs[0])
    if node.inputs[0] not in inputs or len(shape) != 4:
        raise UnsupportedError(
            "Pixels of the native engine reads inputs of the graph with 4 dimensions, not "
            f"{node.inputs[0]} {shape}"
        )
    _, rows, columns, channels = shape
    pitch = (rows * columns * channels, columns * channels, channels)
    buffer = 1 + inputs.index(node.inputs[0])
    decoded = kernels.Tensor(kernels.Number.UINT8, buffer, 0, shape, pitch)
    output = lowering.write(stage.output)
    lowering.needs[output].dense = True
    scale, shift = (np.array(node.get(name), np.float64) for name in ("scale", "shift"))
    format_ = lowering.format(output)
    if isinstance(format_, Bytes):
        scale, shift = scale / format_.scale, shift / format_.scale + format_.zero

    def emit(at: Lowering) -> None:
        at.program.normalise(decoded, at.tensor(output), scale.tolist(), shift.tolist())

    lowering.emit_later(output, emit)


def pooling(lowering: Lowering, stage: Stage) -> None:
    """Plan MaxPool or AveragePool over two dimensions."""
    node = stage.node
    if len(node.outputs) > 1:
        raise UnsupportedError(f"the native engine has {node.op} without indices only")
    if len(node.get("kernel_shape")) != 2 or set(node.get("dilations", [1])) != {1}:
        raise UnsupportedError(
            f"the native engine has {node.op} over two dimensions without dilation, not "
            f"{node.attributes}"
        )
    window, border = window_of(lowering, node, node.get("kernel_shape"))
    source = lowering.read(node.inputs[0])
    format_ = lowering.format(source)
    counts_padding = node.op == "AveragePool" and bool(node.get("count_include_pad", 0))
    if node.get("ceil_mode", 0) and (counts_padding or not _begins_inside(lowering, node)):
        raise UnsupportedError(
            f"the native engine has {node.op} with ceil_mode only if every window begins inside "
            f"the image and padding is not counted, not {node.attributes}"
        )
    if counts_padding and isinstance(format_, Bytes) and format_.zero and border != Border():
        raise UnsupportedError("AveragePool of the native engine counts no padding in bytes")
    output = lowering.write(stage.output)
    lowering.needs[output].format = format_
    kind = kernels.Pooling.MAX if node.op == "MaxPool" else kernels.Pooling.MEAN

    def emit(at: Lowering) -> None:
        at.program.pooling(at.tensor(source), at.tensor(output), window, kind, counts_padding)

    lowering.emit_later(output, emit)


def _begins_inside(lowering: Lowering, node: Node) -> bool:
    """Tell whether, along each axis, the last window begins within the image, not after it."""
    before, after = lowering.shape(node.inputs[0])[2:], lowering.shape(node.output)[2:]
    strides, pads = node.get("strides", [1, 1]), node.get("pads", [0, 0, 0, 0])[:2]
    return all(
        (count - 1) * int(stride) - int(pad) < size
        for size, count, stride, pad in zip(before, after, strides, pads, strict=True)
    )
