"""Plan operators of transformers: LayerNormalization, attention and Softmax."""

# NumPy's stubs leave the element types of arrays open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slipstream.errors import UnsupportedError
from slipstream.infer.native.epilogue import epilogue
from slipstream.infer.native.formats import BFloat16
from slipstream.infer.native.lowering import Lowering, convert
from slipstream.infer.native.operands import bias_of, constant_of
from slipstream.infer.native.stages import Stage, Tail, is_ours


def layer_norm(lowering: Lowering, stage: Stage) -> None:
    """Plan LayerNormalization over the last axis."""
    node = stage.node
    shape = lowering.shape(node.inputs[0])
    if int(node.get("axis", -1)) % len(shape) != len(shape) - 1 or len(shape) == 4:
        raise UnsupportedError(
            "LayerNormalization of the native engine is over the last of up to three dimensions, "
            f"not over axis {node.get('axis', -1)} of {shape}"
        )
    source = lowering.read(node.inputs[0])
    if lowering.format(source) is not None:
        raise UnsupportedError("LayerNormalization of the native engine reads float32")
    scale = constant_of(lowering, node, 1).astype(np.float32)
    bias = bias_of(lowering, node, 2, shape[-1])
    if stage.tail.addend is not None:
        raise UnsupportedError("LayerNormalization of the native engine fuses no addition")
    output = lowering.write(stage.output)
    end = epilogue(stage.tail, scale, bias, lowering.format(output), None)
    epsilon = float(node.get("epsilon", 1e-5))

    def emit(at: Lowering) -> None:
        at.program.layer_norm(at.tensor(source), at.tensor(output), epsilon, end)

    lowering.emit_later(output, emit)


def attention(lowering: Lowering, stage: Stage) -> None:
    """Plan Slipstream's own operator Attention, whose inputs are q, k, v, and perhaps a mask.

    The shape of q, k and v is (batch, tokens, heads * channels).
    """
    node = stage.node
    if not is_ours(node, "Attention"):
        raise UnsupportedError("the native engine has Slipstream's own Attention, not ONNX's")
    heads, scale = int(node.get("heads")), float(node.get("scale"))
    names = [lowering.read(name) for name in node.inputs[:3]]
    shape = lowering.shape(stage.output)
    kinds = {lowering.format(name) for name in names}
    if kinds not in ({None}, {BFloat16()}) or shape[-1] // heads % 16:
        raise UnsupportedError(
            "Attention of the native engine has heads of 16, 32, 48 ... channels, all float32 or "
            f"all bfloat16, not {shape[-1] // heads} channels of {kinds}"
        )
    mask = _mask(lowering, stage) if len(node.inputs) > 3 and node.inputs[3] else None
    for name in names:  # the mask is made first, and the operands must stay until then
        lowering.read(name)
    output = lowering.write(stage.output)
    ones = np.ones(shape[-1] // heads, np.float32)
    end = epilogue(Tail(), ones, 0 * ones, lowering.format(output), None)

    def emit(at: Lowering) -> None:
        q, k, v = (at.tensor(name) for name in names)
        location = None if mask is None else at.location(mask)
        if location is not None and location.sizes[0] == 1:  # one mask for the whole batch
            location = replace(location, pitch=(0, *location.pitch[1:]))
        more = None if location is None else at.tensor(location)
        at.program.attention(q, k, v, more, at.tensor(output), heads, scale, end)

    lowering.emit_later(output, emit)


def _mask(lowering: Lowering, stage: Stage) -> str:
    """Return the name of the mask, which is the same for all heads.

    Its shape is (batch or 1, queries or 1, keys).
    """
    source = lowering.read(stage.node.inputs[3])
    shape = (1,) * (4 - len(lowering.shape(source))) + lowering.shape(source)
    if len(shape) != 4 or shape[1] != 1 or lowering.format(source) is not None:
        raise UnsupportedError(
            f"Attention of the native engine has one float32 mask for all heads, not {shape}"
        )
    output = lowering.write(f"{stage.output}:mask", (shape[0], *shape[2:]), floats=True)

    def emit(at: Lowering) -> None:
        from_, to = at.location(source), at.location(output)
        strides = ((0,) * (4 - len(from_.shape)) + from_.strides())[-4:]
        convert(at, from_, to, (strides[0], *strides[2:]), to.shape, to.strides())

    lowering.emit_later(output, emit)
    return lowering.read(output)


def softmax(lowering: Lowering, stage: Stage) -> None:
    """Plan Softmax of float32 over the last axis."""
    node = stage.node
    shape = lowering.shape(node.inputs[0])
    axis = int(node.get("axis", -1)) % len(shape)
    source = lowering.read(node.inputs[0])
    if len(shape) == 4 or axis != len(shape) - 1 or lowering.format(source) is not None:
        raise UnsupportedError(
            "Softmax of the native engine is over the last of up to three dimensions of float32, "
            f"not over axis {axis} of {shape}"
        )
    output = lowering.write(stage.output, floats=True)

    def emit(at: Lowering) -> None:
        at.program.softmax(at.tensor(source), at.tensor(output))

    lowering.emit_later(output, emit)
