"""Operations on single numbers, by themselves and at the end of others."""

from __future__ import annotations

import numpy as np
import pytest

CHANNELS = (1, 3, 5, 16, 17, 24, 40, 64, 100)
ACTIVATIONS = [
    ("Relu", {}),
    ("Silu", {}),
    ("HardSwish", {}),
    ("Sigmoid", {}),
    ("HardSigmoid", {}),
    ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    ("Gelu", {}),
    ("Tanh", {}),
    ("LeakyRelu", {}),
    ("LeakyRelu", {"alpha": 0.3}),
]


@pytest.mark.parametrize("shape", [(2, 24, 5, 7), (1, 3, 4, 4), (2, 9, 40), (3, 17), (20,)])
@pytest.mark.parametrize(("op", "attributes"), [*ACTIVATIONS, ("Clip", {})], ids=str)
def test_activations(check, sketch, op, attributes, shape):
    x = sketch.input(*shape)
    check(sketch.done(sketch.activated(x, op, attributes)), "float32")


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize(("op", "attributes"), [*ACTIVATIONS, ("Clip", {})], ids=str)
def test_activations_of_great_numbers(check, kind, sketch, op, attributes):
    """The result is stored, because a product reads it."""
    x = sketch.input(1, 16, 4, 4)
    numbers = np.geomspace(1e-3, 1e4, 128, dtype=np.float32)
    feeds = {x: np.concatenate([-numbers, numbers]).reshape(1, 16, 4, 4)}
    y = sketch.activated(x, op, attributes)
    same = sketch("Conv", y, sketch.constant(np.ones((16, 1, 1, 1))), group=16)
    check(sketch.done(same), kind, feeds=feeds)


FORMS = ["act", "add act", "act add", "act add relu", "act add clip"]
FORMS_WITHOUT_ACTIVATION = ["plain", "add", "add relu"]


def finished(sketch, x, other, form, op, attributes):
    """`x` followed by what `form` says, `other` being what is added."""
    for word in form.split():
        if word == "add":
            x = sketch("Add", x, other)
        elif word == "act":
            x = sketch.activated(x, op, attributes)
        elif word in ("relu", "clip"):
            x = sketch.activated(x, word.capitalize(), {})
    return x


def with_tail(sketch, of, form, op="Relu", attributes=None):
    """Return the graph of a layer of the kind `of` and its tail."""
    shape = (2, 9, 40) if of == "linear" else (1, 40, 4, 5)
    x, other = sketch.input(*shape), sketch.input(*shape)
    if of == "linear":
        y = sketch.linear(x, 40)
    else:
        y = sketch.conv(x, 40, 3, 40 if of == "depthwise" else 1)
    return sketch.done(finished(sketch, y, other, form, op, attributes or {}))


@pytest.mark.sweep
@pytest.mark.parametrize("of", ["conv", "depthwise", "linear"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("op", "attributes"), [*ACTIVATIONS, ("Clip", {})], ids=str)
def test_tails(check, kind, sketch, form, of, op, attributes):
    check(with_tail(sketch, of, form, op, attributes), kind)


@pytest.mark.parametrize("of", ["conv", "depthwise", "linear"])
@pytest.mark.parametrize("form", ["plain", "add"])
def test_tails_without_activation(check, kind, sketch, form, of):
    """An addition before Relu is tested with the activations."""
    check(with_tail(sketch, of, form), kind)


@pytest.mark.parametrize("form", [*FORMS_WITHOUT_ACTIVATION, *FORMS])
def test_tails_before_another_product(check, kind, sketch, form):
    """The result of the tail is stored in memory and is no output."""
    x, other = sketch.input(2, 24, 6, 5), sketch.input(2, 24, 6, 5)
    y = finished(sketch, sketch.conv(x, 24), other, form, "Silu", {})
    check(sketch.done(sketch.conv(y, 8, 1)), kind)


def test_addend_of_another_format(check, kind, sketch):
    """The addend is float32, because no product reads it."""
    x, other = sketch.input(1, 24, 6, 5), sketch.input(1, 24, 6, 5)
    bent = sketch("Tanh", other)
    y = sketch("Add", sketch.conv(x, 24), bent)
    check(sketch.done(sketch.conv(y, 16, 1), bent), kind)


@pytest.mark.parametrize("op", ["Add", "Mul"])
@pytest.mark.parametrize("shape", [(2, 24, 5, 7), (1, 3, 4, 4), (2, 9, 40), (3, 17)])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_constant_operand(check, sketch, op, shape, first, whole):
    x = sketch.input(*shape)
    channels = (shape[1], 1, 1) if len(shape) == 4 else shape[-1:]
    constant = sketch.vector(*(() if whole else channels))
    check(sketch.done(sketch(op, *((constant, x) if first else (x, constant)))), "float32")


@pytest.mark.parametrize("shape", [(2, 24, 5, 7), (2, 9, 40), (3, 17)])
def test_constant_of_the_whole_shape(check, sketch, shape):
    x = sketch.input(*shape)
    check(sketch.done(sketch("Add", x, sketch.vector(*shape))), "float32")


@pytest.mark.parametrize(
    ("shape", "constant"),
    [((2, 24, 5, 7), (1, 24, 1, 1)), ((2, 9, 40), (40,)), ((1, 40), (1, 40)), ((2, 9, 40), ())],
)
@pytest.mark.parametrize("first", [False, True])
def test_constant_operand_before_an_addition(check, sketch, shape, constant, first):
    x, other, add = sketch.input(*shape), sketch.input(*shape), sketch.vector(*constant)
    y = sketch("Add", *((add, x) if first else (x, add)))
    check(sketch.done(sketch("Add", y, other)), "float32")


@pytest.mark.parametrize("shape", [(2, 24, 5, 7), (2, 9, 40), (3, 17)])
def test_addition(check, sketch, shape):
    x, other = sketch.input(*shape), sketch.input(*shape)
    check(sketch.done(sketch("Add", x, other)), "float32")


def test_addition_of_a_value_to_itself(check, kind, sketch):
    x = sketch.input(1, 24, 4, 4)
    y = sketch.conv(x, 24)
    check(sketch.done(sketch("Add", y, y)), kind)


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("first", [False, True])
def test_gate(check, sketch, channels, first):
    x = sketch.input(3, channels, 5, 4)
    gate = sketch("Sigmoid", sketch("GlobalAveragePool", x))
    check(sketch.done(sketch("Mul", *((gate, x) if first else (x, gate)))), "float32")


@pytest.mark.parametrize("shape", [(1, 24), (5, 17), (2, 16, 1, 1)])
def test_product_of_two_values(check, sketch, shape):
    """Both values have one number per channel; their storage as bytes is tested with layers."""
    check(sketch.done(sketch("Mul", sketch.input(*shape), sketch.input(*shape))), "float32")


def test_square(check, sketch):
    x = sketch.input(3, 40)
    check(sketch.done(sketch("Mul", x, x)), "float32")


def test_constant_times_factors(check, sketch):
    y = sketch("Mul", sketch.vector(1, 16, 4, 4), sketch.input(1, 16, 1, 1))
    check(sketch.done(y), "float32")


def test_inverse_root(check, sketch):
    """After a layer whose sums are positive, as in demodulation."""
    x = sketch.input(2, 40)
    weights = sketch.constant(sketch.random.random((40, 24)))
    y = sketch("Linear", sketch("Mul", x, x), weights, sketch.constant(sketch.random.random(24)))
    check(sketch.done(sketch("InverseRoot", y)), "float32")
