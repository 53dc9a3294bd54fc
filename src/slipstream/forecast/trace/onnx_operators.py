"""Conversion of ONNX operators to PyTorch's, with the tensors that the backward pass needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from slipstream.errors import UsageError
from slipstream.forecast.trace.kinds import kind_of
from slipstream.forecast.trace.onnx_graph import OnnxNode
from slipstream.forecast.trace.onnx_products import terms_of
from slipstream.forecast.trace.steps import Back, ForwardStep, TensorType, Term
from slipstream.forecast.work.workload import OperatorKind

# Operators that only make another view of their input.
_VIEWS = {
    "Expand", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose",
    "Unsqueeze",
}  # fmt: skip
# PyTorch's name of each operator whose ONNX name in lower case is different.
_NAMES = {
    "Attention": "scaled_dot_product_attention", "BatchNormalization": "native_batch_norm",
    "Concat": "cat", "Conv": "convolution", "ConvTranspose": "convolution", "Dropout": "dropout",
    "Gather": "embedding", "Gemm": "addmm", "GroupNormalization": "native_group_norm",
    "InstanceNormalization": "native_batch_norm", "LayerNormalization": "native_layer_norm",
    "LogSoftmax": "log_softmax", "MaxPool": "max_pool2d_with_indices",
    "NegativeLogLikelihoodLoss": "nll_loss_forward", "RMSNormalization": "rms_norm",
    "SoftmaxCrossEntropyLoss": "nll_loss_forward", "Sum": "add",
}  # fmt: skip
# Operators whose backward pass reads the output, and operators whose backward pass reads nothing.
# The backward pass of all other operators reads the inputs.
_KEEP_OUTPUT = {"Exp", "LogSoftmax", "Reciprocal", "Relu", "Sigmoid", "Softmax", "Sqrt", "Tanh"}
_KEEP_NOTHING = {
    "Add", "AveragePool", "Cast", "Concat", "CumSum", "DepthToSpace", "Expand", "GlobalAveragePool",
    "Mean", "Neg", "Pad", "ReduceMean", "ReduceSum", "Resize", "SpaceToDepth", "Sub", "Sum", "Tile",
}  # fmt: skip
_PASS = {"Add", "Sub", "Sum"}
# Index of the first input that is a setting or a statistic; this input and later ones are never
# trained.
_SETTINGS = {
    "BatchNormalization": 3, "Clip": 1, "CumSum": 1, "Dropout": 1, "Expand": 1, "OneHot": 1,
    "Pad": 1, "Pow": 1, "Resize": 1, "SoftmaxCrossEntropyLoss": 1, "NegativeLogLikelihoodLoss": 1,
    "Tile": 1, "Upsample": 1, "Where": 3,
}  # fmt: skip


def trained_inputs(node: OnnxNode) -> tuple[str, ...]:
    """Return the names of those inputs of an operator that may be parameters of the model.

    Args:
        node: Operator of a graph.
    """
    return tuple(filter(None, node.inputs[: _SETTINGS.get(node.op)]))


def step_of(
    node: OnnxNode,
    tensors: dict[str, TensorType],
    constants: Mapping[str, npt.NDArray[Any]],
    root: str,
) -> ForwardStep:
    """Return the operator that PyTorch would run for an ONNX operator.

    Args:
        node: Operator of a graph.
        tensors: Shape and dtype of each tensor, by tensor name. The function adds the tensors that
            PyTorch saves for the backward pass.
        constants: Tensors that are known before the model runs, by name.
        root: Name of the outermost module, with which the module path of the operator begins.

    Raises:
        UsageError: The operator multiplies integers, as in quantised models.
    """
    if node.op.startswith(("QLinear", "QGemm")) or node.op.endswith("Integer"):
        raise UsageError(
            f"{node.op} {node.name!r} is quantised, so it cannot be trained; export the model in"
            " float32"
        )
    terms = terms_of(node, tensors)
    variable = tuple(name for name in node.inputs if name and name not in constants)
    operands = tuple(name for term in terms for name in (term.left, term.right) if name)
    inputs = (*(name for name in variable if name not in operands), *operands)
    outputs = tuple(filter(None, node.outputs))
    module = f"{root}.{node.module}" if node.module else root
    if _is_view(node, tensors, constants) and variable:
        return ForwardStep(
            name=node.op.lower(), module=module, kind=OperatorKind.MEMORY, inputs=variable[:1],
            outputs=outputs[:1] if node.op == "Dropout" else outputs, back=Back.PASSES, view=True,
        )  # fmt: skip
    name = _name(node, terms)
    first = tensors[outputs[0]]
    moved = 2 * first.num_bytes if node.op == "Gather" else None
    saved = _saved(node, inputs, outputs)
    if node.op == "Dropout":
        outputs, saved = _beside(outputs[0], "bool", tensors)
        moved = 2 * first.num_bytes + first.elements
    elif node.op == "MaxPool":
        outputs, saved = _beside(outputs[0], "int64", tensors)
    return ForwardStep(
        name=name, module=module, kind=_kind(node, name, terms), terms=terms, inputs=inputs,
        outputs=outputs, saved=saved, back=_back(node), moved=moved,
    )  # fmt: skip


def _is_view(
    node: OnnxNode, tensors: Mapping[str, TensorType], constants: Mapping[str, npt.NDArray[Any]]
) -> bool:
    if node.op == "Dropout":
        training = node.inputs[2] if len(node.inputs) > 2 else ""
        return training not in constants or not constants[training].item()
    if node.op == "Cast":
        return tensors[node.inputs[0]].dtype == tensors[node.outputs[0]].dtype
    return node.op in _VIEWS


def _beside(
    output: str, dtype: str, tensors: dict[str, TensorType]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Add a second output for the backward pass; return both names, and a tuple of the second."""
    first = tensors[output]
    tensors[f"{output}:kept"] = TensorType(first.shape, dtype, first.times)
    return (output, f"{output}:kept"), (f"{output}:kept",)


def _name(node: OnnxNode, terms: tuple[Term, ...]) -> str:
    if node.op in ("MatMul", "Einsum"):
        return "bmm" if terms[0].product.batch > 1 else "mm"
    return _NAMES.get(node.op, node.op.lower())


def _kind(node: OnnxNode, name: str, terms: tuple[Term, ...]) -> OperatorKind:
    if node.op == "LpNormalization":
        return OperatorKind.NORM
    return kind_of(name, [term.product for term in terms])


def _saved(node: OnnxNode, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> tuple[str, ...]:
    if node.op in _KEEP_OUTPUT:
        return outputs[:1]
    if node.op in _KEEP_NOTHING:
        return ()
    if node.op == "Gather":
        return inputs[1:]
    if node.op == "Where":
        return tuple(name for name in node.inputs[:1] if name in inputs)
    # The gradient of a product with a constant does not depend on the other factor.
    if node.op in ("Mul", "Div") and len(inputs) == 1:
        return ()
    return inputs


def _back(node: OnnxNode) -> Back:
    if node.op == "Concat":
        return Back.NARROWS
    return Back.PASSES if node.op in _PASS else Back.COMPUTES
