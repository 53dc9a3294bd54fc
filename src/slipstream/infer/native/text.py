"""What transformers need besides products."""

# NumPy is typed but for its element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slipstream.errors import UnsupportedError
from slipstream.infer.native.formats import BFloat16
from slipstream.infer.native.lower import Lowering, convert, epilogue
from slipstream.infer.native.operands import bias_of, constant_of
from slipstream.infer.native.stages import Stage, Tail, is_ours


def layer_norm(lowering: Lowering, stage: Stage) -> None:
    """LayerNormalization over the last axis."""
    node = stage.node
    shape = lowering.shape(node.inputs[0])
    if int(node.get("axis", -1)) % len(shape) != len(shape) - 1 or len(shape) == 4:
        raise UnsupportedError("our kernels normalise over the last of up to three dimensions")
    source = lowering.read(node.inputs[0])
    if lowering.format(source) is not None:
        raise UnsupportedError("LayerNormalization of our kernels reads float32")
    scale = constant_of(lowering, node, 1).astype(np.float32)
    bias = bias_of(lowering, node, 2, shape[-1])
    if stage.tail.addend is not None:
        raise UnsupportedError("LayerNormalization of our kernels adds nothing after it")
    output = lowering.write(stage.output)
    end = epilogue(stage.tail, scale, bias, lowering.format(output), None)
    epsilon = float(node.get("epsilon", 1e-5))

    def emit(at: Lowering) -> None:
        at.program.layer_norm(at.tensor(source), at.tensor(output), epsilon, end)

    lowering.then(output, emit)


def attention(lowering: Lowering, stage: Stage) -> None:
    """Attention (q, k, v[, mask]) of ours: tokens in the middle, heads side by side."""
    node = stage.node
    if not is_ours(node, "Attention"):
        raise UnsupportedError("our kernels have the Attention that rewrites make, not ONNX's")
    heads, scale = int(node.get("heads")), float(node.get("scale"))
    names = [lowering.read(name) for name in node.inputs[:3]]
    shape = lowering.shape(stage.output)
    kinds = {lowering.format(name) for name in names}
    if kinds not in ({None}, {BFloat16()}) or shape[-1] // heads % 16:
        raise UnsupportedError("Attention of our kernels has heads of 16 n channels, not of bytes")
    mask = _mask(lowering, stage) if len(node.inputs) > 3 and node.inputs[3] else None
    for name in names:  # they are read after the mask was made
        lowering.read(name)
    output = lowering.write(stage.output)
    ones = np.ones(shape[-1] // heads, np.float32)
    end = epilogue(Tail(), ones, 0 * ones, lowering.format(output), None)

    def emit(at: Lowering) -> None:
        q, k, v = (at.tensor(name) for name in names)
        place = None if mask is None else at.place(mask)
        if place is not None and place.sizes[0] == 1:  # one for all pictures
            place = replace(place, pitch=(0, *place.pitch[1:]))
        more = None if place is None else at.tensor(place)
        at.program.attention(q, k, v, more, at.tensor(output), heads, scale, end)

    lowering.then(output, emit)


def _mask(lowering: Lowering, stage: Stage) -> str:
    """A mask for all heads as (pictures or 1, queries or 1, keys)."""
    source = lowering.read(stage.node.inputs[3])
    shape = (1,) * (4 - len(lowering.shape(source))) + lowering.shape(source)
    if len(shape) != 4 or shape[1] != 1 or lowering.format(source) is not None:
        raise UnsupportedError(f"our kernels have no mask {shape} of Attention")
    output = lowering.write(f"{stage.output}:mask", (shape[0], *shape[2:]), floats=True)

    def emit(at: Lowering) -> None:
        from_, to = at.place(source), at.place(output)
        strides = ((0,) * (4 - len(from_.shape)) + from_.strides())[-4:]
        convert(at, from_, to, (strides[0], *strides[2:]), to.shape, to.strides())

    lowering.then(output, emit)
    return lowering.read(output)


def softmax(lowering: Lowering, stage: Stage) -> None:
    """Softmax over the last axis, float32."""
    node = stage.node
    shape = lowering.shape(node.inputs[0])
    axis = int(node.get("axis", -1)) % len(shape)
    source = lowering.read(node.inputs[0])
    if len(shape) == 4 or axis != len(shape) - 1 or lowering.format(source) is not None:
        raise UnsupportedError("our kernels have Softmax over the last of up to three dimensions")
    output = lowering.write(stage.output, floats=True)

    def emit(at: Lowering) -> None:
        at.program.softmax(at.tensor(source), at.tensor(output))

    lowering.then(output, emit)
