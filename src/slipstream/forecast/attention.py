"""Attention without a fused kernel: scores are written to memory and read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slipstream.forecast.workload import Kind, Operator, Phase, Product

_SIZES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
# Times that a kernel reads or writes scores; a mask of dropout is a byte per score.
_SOFTMAX = {Phase.FORWARD: 2, Phase.BACKWARD: 3}


def unfused(operators: Sequence[Operator], *, dropout: bool) -> tuple[Operator, ...]:
    """Returns the operators with each fused attention as the kernels that it replaces: products,
    softmax with scale and mask, and dropout of what it gives.

    Args:
        operators: in order.
        dropout: scores are dropped.
    """
    return tuple(
        part
        for operator in operators
        for part in (_parts(operator, dropout) if operator.kind is Kind.ATTENTION else (operator,))
    )


def _parts(operator: Operator, dropout: bool) -> list[Operator]:
    scores, sums = (replace(product, fill=1.0) for product in operator.products[:2])
    if operator.phase is Phase.FORWARD:
        products = [_product(operator, scores), _product(operator, sums)]
        return [products[0], *_softmax(operator, scores, dropout), products[1]]
    products = [_product(operator, replace(each, fill=1.0)) for each in operator.products[-4:]]
    return [*products[2:], *_softmax(operator, scores, dropout), *products[:2]]


def _product(operator: Operator, product: Product) -> Operator:
    batch, m, n, k = product.batch, product.m, product.n, product.k
    moved = batch * (m * n + m * k + n * k) * _SIZES[operator.dtype]
    return replace(
        operator, name="bmm", kind=Kind.PRODUCT, products=(product,), bytes_moved=float(moved)
    )


def _softmax(operator: Operator, scores: Product, dropout: bool) -> list[Operator]:
    size, numbers = _SIZES[operator.dtype], scores.batch * scores.m * scores.n
    moved = numbers * size * _SOFTMAX[operator.phase]
    softmax = replace(
        operator, name="softmax", kind=Kind.NORM, products=(), bytes_moved=float(moved)
    )
    if not dropout:
        return [softmax]
    dropped = float(numbers * (2 * size + 1))
    drop = replace(operator, name="dropout", kind=Kind.MEMORY, products=(), bytes_moved=dropped)
    return [softmax, drop] if operator.phase is Phase.FORWARD else [drop, softmax]
