"""The matrix products that ONNX operators compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

from slipstream.errors import UsageError
from slipstream.forecast.trace.onnx_graph import OnnxNode
from slipstream.forecast.trace.steps import TensorType, Term
from slipstream.forecast.work.workload import Product

_Tensors = Mapping[str, TensorType]


def terms_of(node: OnnxNode, tensors: _Tensors) -> tuple[Term, ...]:
    """Return the matrix products of an operator; the tuple is empty if it computes none.

    Args:
        node: Operator of a graph.
        tensors: Shape and dtype of each tensor, by tensor name.

    Raises:
        UsageError: The operator is an Einsum of more than two inputs, or with an ellipsis.
    """
    find = _FINDERS.get(node.op)
    return find(node, tensors) if find else ()


def _term(product: Product, left: str, right: str, tensors: _Tensors) -> Term:
    """Return a matrix product in which the micro-batch size replaces the file's batch size."""
    times = tensors[right if tensors[left].fixed else left].times
    if tensors[right].fixed:
        product = replace(product, m=_scaled(product.m, times))
    elif tensors[left].fixed:
        product = replace(product, n=_scaled(product.n, times))
    else:
        product = replace(product, batch=_scaled(product.batch, times))
    return Term(product, left, right)


def _scaled(size: int, times: Fraction) -> int:
    return math.ceil(size * times)


def _matmul(node: OnnxNode, tensors: _Tensors) -> tuple[Term, ...]:
    left, right = node.inputs[:2]
    a, b = tensors[left].shape, tensors[right].shape
    k = a[-1]
    outer = tensors[node.outputs[0]].shape
    if len(b) <= 2:
        # The rows of all matrices form one matrix.
        product = Product(1, math.prod(a[:-1]), math.prod(b) // k, k)
    else:
        batch = math.prod(outer[:-2]) if len(a) > 1 else math.prod(b[:-2])
        product = Product(batch, a[-2] if len(a) > 1 else 1, b[-1], k)
    return (_term(product, left, right, tensors),)


def _gemm(node: OnnxNode, tensors: _Tensors) -> tuple[Term, ...]:
    left, right = node.inputs[:2]
    m, n = tensors[node.outputs[0]].shape
    k = tensors[left].shape[0 if node.attributes.get("transA") else 1]
    return (_term(Product(1, m, n, k), left, right, tensors),)


def _conv(node: OnnxNode, tensors: _Tensors) -> tuple[Term, ...]:
    source, weight = node.inputs[:2]
    groups = int(node.attributes.get("group", 1))
    shape, pixels = tensors[weight].shape, tensors[node.outputs[0]].shape
    strides = node.attributes.get("strides", (1,))
    window = math.prod(shape[2:]) if all(step == 1 for step in strides) else 1
    m = pixels[0] * math.prod(pixels[2:])
    product = Product(groups, m, shape[0] // groups, math.prod(shape[1:]), window)
    return (_term(product, source, weight, tensors),)


def _transposed(node: OnnxNode, tensors: _Tensors) -> tuple[Term, ...]:
    source, weight = node.inputs[:2]
    groups = int(node.attributes.get("group", 1))
    shape, pixels = tensors[weight].shape, tensors[source].shape
    m = pixels[0] * math.prod(pixels[2:])
    product = Product(groups, m, math.prod(shape[1:]), pixels[1] // groups)
    return (_term(product, source, weight, tensors),)


def _einsum(node: OnnxNode, tensors: _Tensors) -> tuple[Term, ...]:
    equation = str(node.attributes["equation"]).replace(" ", "")
    factors, _, result = equation.partition("->")
    if "." in equation or not result or len(node.inputs) != 2:
        raise UsageError(f"Einsum {node.name!r}: {equation!r} is no product of two matrices")
    first, second = factors.split(",")
    left, right = node.inputs
    sizes = dict(zip(first, tensors[left].shape, strict=True))
    sizes |= dict(zip(second, tensors[right].shape, strict=True))
    both = set(first) & set(second)

    def total(letters: set[str]) -> int:
        return math.prod(sizes[letter] for letter in letters)

    m, n = total(set(first) - both), total(set(second) - both)
    product = Product(total(both & set(result)), m, n, total(both - set(result)))
    return (_term(product, left, right, tensors),)


def _attention(node: OnnxNode, tensors: _Tensors) -> tuple[Term, ...]:
    query, key, value = (tensors[name] for name in node.inputs[:3])
    if len(query.shape) == 4:
        heads, head = query.shape[1], query.shape[3]
        width = value.shape[3]
    else:
        heads = int(node.attributes["q_num_heads"])
        head = query.shape[2] // heads
        width = value.shape[2] // int(node.attributes["kv_num_heads"])
    batch = _scaled(query.shape[0] * heads, query.times)
    fill = 0.5 if node.attributes.get("is_causal") else 1.0
    rows, columns = query.shape[-2], key.shape[-2]
    scores = Product(batch, rows, columns, head, 1, fill)
    sums = Product(batch, rows, width, columns, 1, fill)
    return (Term(scores, node.inputs[0], node.inputs[1]), Term(sums, "", node.inputs[2]))


def _recurrent(node: OnnxNode, tensors: _Tensors) -> tuple[Term, ...]:
    """Return the products of an LSTM, GRU or RNN: one for all inputs, and one per time step."""
    source, weight, again = node.inputs[:3]
    shape = tensors[source].shape
    directions, wide, narrow = tensors[weight].shape
    moments = shape[1 if node.attributes.get("layout") else 0]
    samples = _scaled(shape[0] * shape[1] // moments, tensors[source].times)
    hidden = tensors[again].shape[2]
    return (
        Term(Product(directions, moments * samples, wide, narrow), source, weight),
        Term(Product(directions * moments, samples, wide, hidden), "", again),
    )


_FINDERS: Mapping[str, Callable[[OnnxNode, _Tensors], tuple[Term, ...]]] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "ConvTranspose": _transposed,
    "Einsum": _einsum,
    "Attention": _attention,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
}
