"""Linear layers, and the folding of scales and shifts into the weights and biases of layers.

`slipstream.Linear(x, weight[K, N], bias[N])` is x @ weight + bias for x of any rank; the bias is
optional. Constants that scale and shift the output channels of a convolution or linear layer cost
no time, because they are folded into the layer's weights and bias.
"""

# NumPy's stubs do not state the types of many results.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from slipstream.infer.graph.graph import SLIPSTREAM, Array, Node
from slipstream.infer.rewrites.editor import Editor, Replacement, kind, rewrite
from slipstream.infer.rewrites.patterns import operands

LINEAR = "slipstream.Linear"
LAYERS = ("Conv", "ConvTranspose", LINEAR)


def linear(x: str, weight: str, bias: str | None, output: str, name: str = "") -> Node:
    """Create a node slipstream.Linear."""
    inputs = [x, weight] if bias is None else [x, weight, bias]
    return Node("Linear", inputs, [output], domain=SLIPSTREAM, name=name)


# ---- linear layers ----------------------------------------------------------------------------


def _from_matmul(editor: Editor, node: Node) -> Replacement:
    weight = editor.constant(node.inputs[1])
    if weight is None or weight.ndim != 2 or weight.dtype != np.float32:
        return None
    return [linear(node.inputs[0], node.inputs[1], None, node.output, node.name)]


def _from_gemm(editor: Editor, node: Node) -> Replacement:
    x, weight_name, bias_name = (*node.inputs, f"{node.output}_bias")[:3]
    weight = editor.constant(weight_name)
    if weight is None or weight.dtype != np.float32 or node.get("transA", 0):
        return None
    has_bias = len(node.inputs) > 2
    bias = editor.constant(bias_name) if has_bias else np.zeros(1, np.float32)
    size = weight.shape[0 if node.get("transB", 0) else 1]
    if bias is None or (bias.size != 1 and not bias.shape[-1] == bias.size == size):
        return None
    if node.get("transB", 0):
        weight = weight.T
    weight = np.ascontiguousarray(weight * np.float32(node.get("alpha", 1.0)))
    name = editor.add_constant(f"{weight_name}_kn", weight)
    bias = np.resize(bias * np.float32(node.get("beta", 1.0)), size)
    return [linear(x, name, editor.add_constant(bias_name, bias), node.output, node.name)]


def _without_zeros(editor: Editor, node: Node) -> Replacement:
    bias = editor.constant(node.inputs[2]) if len(node.inputs) == 3 else None
    if bias is None or bias.any():
        return None
    return [replace(node, inputs=node.inputs[:2], outputs=list(node.outputs))]


# ---- folding into layers ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AffineLayer:
    """A convolution or linear layer with constant weights; only one node reads its output."""

    node: Node
    weight: Array
    bias: Array | None

    @property
    def num_channels(self) -> int:
        """Number of output channels of the layer."""
        match self.node.op:
            case "Conv":
                return self.weight.shape[0]
            case "ConvTranspose":
                return self.weight.shape[1] * self.node.get("group", 1)
            case _:
                return self.weight.shape[1]

    def scaled(self, scale: Array) -> Array:
        """Return the layer's weights, scaled per output channel, in the weights' own dtype.

        Args:
            scale: One factor per output channel, of shape [channels], or one factor for all output
                channels, of shape [1].
        """
        scale = np.broadcast_to(scale, (self.num_channels,))
        match self.node.op:
            case "Conv":
                scaled = self.weight * scale.reshape(-1, *[1] * (self.weight.ndim - 1))
            case "ConvTranspose":
                # Input channels are sorted by group, and each group has its own output channels.
                num_groups, (num_inputs, num_outputs, *kernel) = (
                    self.node.get("group", 1),
                    self.weight.shape,
                )
                by_group = (num_groups, num_inputs // num_groups, num_outputs, -1)
                weight = self.weight.reshape(by_group)
                weight = weight * scale.reshape(num_groups, 1, num_outputs, 1)
                scaled = weight.reshape(num_inputs, num_outputs, *kernel)
            case _:
                scaled = self.weight * scale
        return scaled.astype(self.weight.dtype)


def layer_of(editor: Editor, name: str) -> AffineLayer | None:
    """Return the layer that computes a value, if the layer's weights and bias are constants.

    The result is None if no such layer computes the value, if several nodes read the value, or if
    the value is an output of the graph.
    """
    node = editor.only(name, *LAYERS)
    if node is None:
        return None
    weight = editor.constant(node.inputs[1])
    has_bias = len(node.inputs) > 2 and bool(node.inputs[2])
    bias = editor.constant(node.inputs[2]) if has_bias else None
    if weight is None or weight.dtype != np.float32 or (has_bias and bias is None):
        return None
    return AffineLayer(node, weight, bias)


def _with(editor: Editor, layer: AffineLayer, scale: Array, shift: Array, output: str) -> Node:
    """Return the layer's node with `scale` and `shift` folded into its weights and bias."""
    old = layer.node
    weight = old.inputs[1]
    if (scale != 1).any():
        weight = editor.add_constant(weight, layer.scaled(scale))
    bias = shift if layer.bias is None else layer.bias * scale + shift
    inputs = [old.inputs[0], weight]
    if layer.bias is not None or bias.any():
        full = np.broadcast_to(bias, (layer.num_channels,)).astype(layer.weight.dtype)
        inputs.append(editor.add_constant(f"{old.inputs[1]}_bias", full))
    return Node(old.op, inputs, [output], dict(old.attributes), old.domain, old.name)


def _batch_norm(editor: Editor, node: Node) -> tuple[Array, Array] | None:
    """Return a pair of float64 arrays: the scale and the shift of each channel of a batch norm.

    The result is None if the batch norm is in training mode, or if a parameter is not constant.
    """
    arrays = [editor.constant(name) for name in node.inputs[1:]]
    is_training = node.get("training_mode", 0) or any(node.outputs[1:])
    matched = [array.astype(np.float64) for array in arrays if array is not None]
    if is_training or len(matched) != 4:
        return None
    gain, offset, mean, variance = matched
    scale = gain / np.sqrt(variance + node.get("epsilon", 1e-5))
    return scale, offset - mean * scale


def _fold_batch_norm(editor: Editor, node: Node) -> Replacement:
    layer, matched = layer_of(editor, node.inputs[0]), _batch_norm(editor, node)
    if layer is None or matched is None:
        return None
    # Batch normalisation has its channels on axis 1, a linear layer on the last axis.
    if kind(layer.node) == LINEAR and editor.rank(node.inputs[0]) != 2:
        return None
    return [_with(editor, layer, *matched, node.output)]


def _lone_batch_norm(editor: Editor, node: Node) -> Replacement:
    matched, rank = _batch_norm(editor, node), editor.rank(node.inputs[0])
    dtype = editor.value(node.inputs[0]).dtype
    if matched is None or rank is None or rank < 2 or dtype is None:
        return None
    scale, shift = (
        editor.add_constant(
            f"{node.output}_{name}", array.astype(dtype).reshape(-1, *[1] * (rank - 2))
        )
        for name, array in zip(("scale", "shift"), matched, strict=True)
    )
    scaled = editor.name(f"{node.output}_scaled")
    return [
        Node("Mul", [node.inputs[0], scale], [scaled]),
        Node("Add", [scaled, shift], node.outputs, name=node.name),
    ]


def _absorb(editor: Editor, node: Node) -> Replacement:
    """Fold a Mul, Add, Sub or Div by one number per output channel into the layer before it."""
    matched = operands(editor, node)
    layer = None if matched is None else layer_of(editor, matched.value)
    channels = (
        None if matched is None or layer is None else _per_channel(editor, layer, matched.constant)
    )
    if matched is None or layer is None or channels is None:
        return None
    one, none = np.ones(1), np.zeros(1)
    if node.op == "Div":
        if matched.constant_first or not channels.all():
            return None
        scale, shift = 1 / channels, none
    elif node.op == "Mul":
        scale, shift = channels, none
    elif node.op == "Add":
        scale, shift = one, channels
    else:
        scale, shift = (-one, channels) if matched.constant_first else (one, -channels)
    return [_with(editor, layer, scale, shift, node.output)]


def _per_channel(editor: Editor, layer: AffineLayer, constant: Array) -> Array | None:
    """Return a constant as float64 [channels] or [1]; None if its numbers differ in a channel."""
    is_linear = kind(layer.node) == LINEAR
    rank = editor.rank(layer.node.output) if is_linear else layer.weight.ndim
    if constant.ndim > 1 and (rank is None or constant.ndim > rank):
        return None
    if constant.size != 1:
        if is_linear or rank is None:
            place = constant.shape[-1]
        else:
            place = constant.shape[1 - rank] if constant.ndim >= rank - 1 else 1
        if not place == constant.size == layer.num_channels:
            return None
    return constant.reshape(-1).astype(np.float64)


def _scale_before(editor: Editor, node: Node) -> Replacement:
    """Move a scalar factor of a layer's input into the layer's weights."""
    product = editor.only(node.inputs[0], "Mul")
    matched = None if product is None else operands(editor, product)
    weight = editor.constant(node.inputs[1])
    if matched is None or weight is None or weight.dtype != np.float32:
        return None
    if matched.constant.size != 1 or matched.constant.ndim > 1:
        return None
    scaled = editor.add_constant(node.inputs[1], weight * matched.constant.reshape(()))
    inputs = [matched.value, scaled, *node.inputs[2:]]
    return [Node(node.op, inputs, node.outputs, dict(node.attributes), node.domain, node.name)]


# ---- arithmetic -------------------------------------------------------------------------------


def _cheaper(editor: Editor, node: Node) -> Replacement:
    """Replace Div by Mul, Sub by Add, Pow by Mul or Sqrt, if the right operand is a constant."""
    left, right = node.inputs
    array = editor.constant(right)
    if array is None or array.dtype != np.float32 or editor.constant(left) is not None:
        return None
    if editor.value(left).dtype != np.float32:
        return None
    if node.op == "Pow":
        return _power(editor, node)
    if node.op == "Sub":
        return [Node("Add", [left, editor.add_constant(right, -array)], node.outputs)]
    with np.errstate(all="ignore"):
        inverse = 1 / array
    if not (np.isfinite(inverse) & (np.abs(inverse) >= np.finfo(np.float32).tiny)).all():
        return None
    return [Node("Mul", [left, editor.add_constant(right, inverse)], node.outputs)]


def _power(editor: Editor, node: Node) -> Replacement:
    base, exponent = node.inputs[0], editor.scalar(node.inputs[1])
    if exponent == 2:
        return [Node("Mul", [base, base], node.outputs)]
    return [Node("Sqrt", [base], node.outputs)] if exponent == 0.5 else None


def _merge_constants(editor: Editor, node: Node) -> Replacement:
    """Merge two constants of consecutive additions or consecutive multiplications."""
    outer = operands(editor, node)
    first = None if outer is None else editor.only(outer.value, node.op)
    inner = None if first is None else operands(editor, first)
    if outer is None or inner is None or outer.constant.dtype != np.float32:
        return None
    shapes = outer.constant.shape, inner.constant.shape
    if np.broadcast_shapes(*shapes) not in shapes:
        return None
    add = node.op == "Add"
    merged = inner.constant + outer.constant if add else inner.constant * outer.constant
    name = editor.add_constant(f"{node.output}_constant", np.asarray(merged))
    return [Node(node.op, [inner.value, name], node.outputs, name=node.name)]


REWRITES = (
    rewrite("matmul-linear", "MatMul by a constant is a linear layer", _from_matmul, "MatMul"),
    rewrite("gemm-linear", "Gemm by a constant is a linear layer", _from_gemm, "Gemm"),
    rewrite("zero-bias", "a bias of zeros is removed", _without_zeros, *LAYERS),
    rewrite(
        "batch-norm",
        "normalisation after a layer goes into its weights",
        _fold_batch_norm,
        "BatchNormalization",
    ),
)

# These rewrites remove scales and shifts. They come after the rewrites that merge several
# operators, because scales and shifts are parts of those patterns.
LATE_REWRITES = (
    rewrite(
        "lone-batch-norm",
        "normalisation after any other node becomes one scale and one shift",
        _lone_batch_norm,
        "BatchNormalization",
    ),
    rewrite(
        "affine",
        "a number per channel after a layer (Add, Sub, Mul, Div) goes into its weights",
        _absorb,
        *("Add", "Div", "Mul", "Sub"),
    ),
    rewrite(
        "scaled-input",
        "a factor of the input of a layer goes into its weights",
        _scale_before,
        *LAYERS,
    ),
    rewrite(
        "cheaper", "Mul replaces Div and squares, Add replaces Sub", _cheaper, "Div", "Pow", "Sub"
    ),
    rewrite(
        "constant-chains",
        "two constants that are added or multiplied in turn become one",
        _merge_constants,
        "Add",
        "Mul",
    ),
)
