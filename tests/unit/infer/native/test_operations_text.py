"""What texts need: products of tokens, norms, softmax, attention."""

from __future__ import annotations

import itertools

import numpy as np
import pytest


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("into", [1, 4, 16, 33, 100])
@pytest.mark.parametrize("shape", [(1, 3), (3, 24), (1, 1, 17), (2, 7, 40), (1, 128, 64), (20, 5)])
def test_linear(check, kind, sketch, shape, into, bias):
    x = sketch.input(*shape)
    check(sketch.done(sketch.linear(x, into, bias=bias)), kind)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("bias", [(), (20,), (1,), (1, 20)])
def test_gemm(check, kind, sketch, transposed, bias):
    x = sketch.input(3, 24)
    weights = sketch.weights(*((20, 24) if transposed else (24, 20)))
    more = [sketch.vector(*bias)] if bias else []
    check(sketch.done(sketch("Gemm", x, weights, *more, transB=int(transposed))), kind)


@pytest.mark.parametrize("shape", [(3, 24), (2, 7, 40), (1, 197, 17), (2, 5, 3)])
@pytest.mark.parametrize("bias", [False, True])
def test_layer_norm(check, sketch, shape, bias):
    """It is an output too, so nothing is stored with less precision than float32."""
    x = sketch.input(*shape)
    more = [sketch.vector(shape[-1])] if bias else []
    y = sketch("LayerNormalization", x, sketch.vector(shape[-1]), *more, axis=-1, epsilon=1e-6)
    check(sketch.done(sketch.linear(y, 24), y), "float32")


def test_layer_norm_before_a_tail(check, sketch):
    x = sketch.input(2, 7, 40)
    y = sketch("LayerNormalization", x, sketch.vector(40), sketch.vector(40), axis=2)
    check(sketch.done(sketch("Gelu", y)), "float32")


def test_layer_norm_before_an_addition(check, sketch):
    x = sketch.input(2, 7, 40)
    y = sketch("LayerNormalization", x, sketch.vector(40), sketch.vector(40), axis=2)
    check(sketch.done(sketch("Add", y, x)), "float32", or_refused=True)


@pytest.mark.parametrize("shape", [(3, 24), (2, 7, 40), (1, 3, 197), (20, 3), (5,)])
def test_softmax(check, sketch, shape):
    x = sketch.input(*shape)
    check(sketch.done(sketch("Softmax", x, axis=-1)), "float32")


TOKENS = [(1, 1), (7, 7), (5, 19), (19, 3), (128, 128), (197, 197)]


def attended(sketch, tokens, heads, mask=None):
    """Attention of two pictures, between products."""
    queries, keys = tokens
    x, other = sketch.input(2, queries, 40), sketch.input(2, keys, 40)
    q, k, v = (sketch.linear(name, 32 * heads) for name in (x, other, other))
    more = [] if mask is None else [sketch.input(*mask)]
    y = sketch("Attention", q, k, v, *more, heads=heads, scale=32**-0.5)
    return sketch.done(sketch.linear(y, 24))


@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("heads", [1, 3])
def test_attention(check, kind, sketch, tokens, heads):
    check(attended(sketch, tokens, heads), kind)


@pytest.mark.parametrize(
    ("tokens", "rows"), [((1, 1), True), *itertools.product(TOKENS[1:], (False, True))], ids=str
)
def test_attention_with_a_mask(check, kind, sketch, tokens, rows):
    queries, keys = tokens
    check(attended(sketch, tokens, 2, (2, 1, queries if rows else 1, keys)), kind)


@pytest.mark.parametrize("tokens", [(7, 7), (5, 19)])
@pytest.mark.parametrize("rows", [False, True])
def test_attention_with_one_mask_for_all(check, kind, sketch, tokens, rows):
    queries, keys = tokens
    check(attended(sketch, tokens, 2, (1, 1, queries if rows else 1, keys)), kind, or_refused=True)


@pytest.mark.parametrize("mask", [(2, 7, 5), (1, 7, 5)], ids=str)
def test_attention_with_a_mask_of_three_dimensions(check, sketch, mask):
    check(attended(sketch, (7, 5), 2, mask), "float32", or_refused=True)


@pytest.mark.parametrize("mask", [(7, 5), (5,)], ids=str)
def test_attention_with_a_mask_of_fewer_dimensions(check, sketch, mask):
    check(attended(sketch, (7, 5), 2, mask), "float32", or_refused=True)


@pytest.mark.parametrize("mask", [(1, 2, 7, 5), (2, 2, 1, 5)], ids=str)
def test_attention_with_a_mask_per_head(check, sketch, mask):
    check(attended(sketch, (7, 5), 2, mask), "float32", or_refused=True)


def test_attention_where_some_tokens_count_for_nothing(check, sketch):
    x = sketch.input(2, 9, 32)
    mask = np.where(np.arange(9) < 5, 0, np.finfo(np.float32).min).reshape(1, 1, 1, 9)
    y = sketch("Attention", x, x, x, sketch.constant(np.repeat(mask, 2, 0)), heads=2, scale=0.25)
    check(sketch.done(y), "float32")
