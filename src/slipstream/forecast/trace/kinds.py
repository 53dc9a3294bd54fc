"""Facts about PyTorch's operators: the kind and the matrix products of each operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from slipstream.forecast.work.workload import OperatorKind, Product

# Matrix units are mostly idle if a group has fewer channels than this: they need multiples of 8 in
# 16 bits (NVIDIA, "Matrix multiplication background user's guide").
DEPTHWISE_CHANNELS = 8

_NORMS = (
    "batch_norm", "layer_norm", "group_norm", "rms_norm", "softmax", "nll_loss", "cross_entropy",
)  # fmt: skip
_GATHERS = ("embedding", "index_select", "gather", "index_put", "scatter", "index")


def kind_of(name: str, products: Sequence[Product]) -> OperatorKind:
    """Return the kind of an operator.

    Args:
        name: Name of the operator in ATen, without its overload.
        products: Matrix products of the operator, as `products_of` returns them.
    """
    if "attention" in name:
        return OperatorKind.ATTENTION
    if "convolution" in name:
        return (
            OperatorKind.DEPTHWISE
            if products and _is_narrow(*products)
            else OperatorKind.CONVOLUTION
        )
    if products:
        return OperatorKind.PRODUCT
    if any(part in name for part in _NORMS):
        return OperatorKind.NORM
    if name in _GATHERS or name.startswith("embedding"):
        return OperatorKind.GATHER
    return OperatorKind.MEMORY


def _is_narrow(first: Product, *for_weight: Product) -> bool:
    """Return whether a convolution has several groups of few channels each.

    The product that computes the weight's gradient is judged by its number of columns only: its
    summed dimension is the number of pixels, which depends on the batch.
    """
    few = DEPTHWISE_CHANNELS * 9
    return first.batch > 1 and min(first.k, first.n) < few and all(p.n < few for p in for_weight)


def products_of(name: str, args: Sequence[Any], outputs: Sequence[Any]) -> tuple[Product, ...]:
    """Return the matrix products that an operator computes.

    Args:
        name: Name of the operator in ATen, without its overload.
        args: Arguments of the call.
        outputs: Tensors that the call returned.
    """
    find = _PRODUCTS.get(name)
    return find(args, outputs) if find else ()


def _mm(args: Sequence[Any], outputs: Sequence[Any]) -> tuple[Product, ...]:
    operands = [x for x in args if hasattr(x, "shape") and x.dim() >= 2][-2:]
    left, right = (tuple(x.shape) for x in operands)
    batch = left[0] if len(left) == 3 else 1
    odd = any(map(_is_odd, (*operands, *outputs[:1])))
    return (Product(batch, left[-2], right[-1], left[-1], odd=odd),)


def _is_odd(matrix: Any) -> bool:
    """Return whether the larger of the two strides of a matrix, in elements, is odd."""
    return min(matrix.shape[-2:]) > 1 and max(matrix.stride()[-2:]) % 2 == 1


def _convolution(args: Sequence[Any], outputs: Sequence[Any]) -> tuple[Product, ...]:
    source, weight, transposed, groups = args[0], args[1], args[6], args[8]
    window = _window(weight, args[3])
    return (_conv_product(source, weight, outputs[0], transposed, groups, window),)


def _convolution_backward(args: Sequence[Any], outputs: Sequence[Any]) -> tuple[Product, ...]:
    gradient, source, weight = args[0], args[1], args[2]
    transposed, groups, mask = args[7], args[9], args[10]
    window = _window(weight, args[4])
    forward = _conv_product(source, weight, gradient, transposed, groups, window)
    for_input, for_weight = _both(forward)
    return tuple(
        product for product, asked in zip((for_input, for_weight), mask, strict=False) if asked
    )


def _window(weight: Any, stride: Sequence[int]) -> int:
    """Return `Product.window`: a convolution window's number of pixels, or 1 for strides over 1."""
    return math.prod(weight.shape[2:]) if all(step == 1 for step in stride) else 1


def _conv_product(
    source: Any, weight: Any, output: Any, transposed: bool, groups: int, window: int
) -> Product:
    """Return the matrix product that is equivalent to a convolution; each pixel is a row."""
    pixels = source if transposed else output
    m = pixels.shape[0] * math.prod(pixels.shape[2:])
    taps = math.prod(weight.shape[2:])
    if transposed:
        return Product(groups, m, weight.shape[1] * taps, source.shape[1] // groups)
    return Product(groups, m, weight.shape[0] // groups, weight.shape[1] * taps, window)


def _attention(args: Sequence[Any], outputs: Sequence[Any]) -> tuple[Product, ...]:
    causal = any(flag is True for flag in args[3:6])
    return _attention_of(args[:3], 0.5 if causal else 1.0)


def _attention_backward(args: Sequence[Any], outputs: Sequence[Any]) -> tuple[Product, ...]:
    causal = any(flag is True for flag in args[6:])
    scores, sums = _attention_of(args[1:4], 0.5 if causal else 1.0)
    # The backward pass computes the scores again, and two products for each forward product.
    return (scores, *_both(scores), *_both(sums))


def _attention_of(tensors: Sequence[Any], fill: float) -> tuple[Product, Product]:
    query, key, value = (tuple(x.shape) for x in tensors)
    heads = math.prod(query[:-2])
    scores = Product(heads, query[-2], key[-2], query[-1], 1, fill)
    return scores, Product(heads, query[-2], value[-1], key[-2], 1, fill)


def _both(product: Product) -> tuple[Product, Product]:
    """Return the matrix products for the gradients of a product's left and right factor."""
    return (
        replace(product, n=product.k, k=product.n),
        replace(product, m=product.n, n=product.k, k=product.m),
    )


_Finder = Callable[[Sequence[Any], Sequence[Any]], tuple[Product, ...]]
_PRODUCTS: dict[str, _Finder] = {
    "mm": _mm,
    "addmm": _mm,
    "bmm": _mm,
    "baddbmm": _mm,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "_scaled_dot_product_flash_attention": _attention,
    "_scaled_dot_product_flash_attention_backward": _attention_backward,
    "_scaled_dot_product_efficient_attention": _attention,
    "_scaled_dot_product_efficient_attention_backward": _attention_backward,
}
