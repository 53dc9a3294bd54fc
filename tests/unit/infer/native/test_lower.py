"""Programs of several operations: chains, memory, threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from slipstream import _kernels as kernels
from slipstream.infer.native.lower import lower
from slipstream.infer.native.operations import OPERATIONS
from slipstream.infer.native.stages import stages_of

ACTIVATIONS = ("Relu", "Silu", "HardSwish", "Sigmoid", "Gelu", "Tanh", "LeakyRelu")
WIDTHS = (8, 16, 24, 33, 48)


def conv(sketch, x):
    kernel, stride = int(sketch.random.choice([1, 3, 5])), int(sketch.random.choice([1, 1, 2]))
    return sketch.conv(x, int(sketch.random.choice(WIDTHS)), kernel, strides=[stride, stride])


def depthwise(sketch, x):
    channels = sketch.shape(x)[1]
    return sketch.conv(x, channels, int(sketch.random.choice([3, 5])), channels)


def activation(sketch, x):
    return sketch(str(sketch.random.choice(ACTIVATIONS)), x)


def residual(sketch, x):
    inside = activation(sketch, sketch.conv(x, sketch.shape(x)[1]))
    return sketch("Add", *((x, inside) if sketch.random.random() < 0.5 else (inside, x)))


def squeeze(sketch, x):
    return sketch.squeeze_excite(x, 6)


def pool(sketch, x):
    op = str(sketch.random.choice(["MaxPool", "AveragePool"]))
    return sketch(op, x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])


def branches(sketch, x):
    parts = [sketch.conv(x, int(sketch.random.choice(WIDTHS)), 1) for _ in range(2)]
    return sketch("Concat", *parts, x, axis=1)


def halves(sketch, x):
    x = sketch.conv(x, 40, 1)
    first = sketch("Split", x, sketch.constant([24, 16]), outputs=2, axis=1)
    return sketch("Concat", f"{first}_1", sketch.conv(first, 16, 1), axis=1)


def larger(sketch, x):
    scales = sketch.constant(np.array([1, 1, 2, 2], np.float32))
    more = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return sketch("Resize", x, "", scales, mode="nearest", **more)


def shifted(sketch, x):
    channels = sketch.shape(x)[1]
    scaled = sketch("Mul", x, sketch.vector(1, channels, 1, 1))
    return sketch("Relu", sketch("Add", scaled, sketch.vector(channels, 1, 1)))


PICTURES = (conv, depthwise, activation, residual, squeeze, pool, branches, halves, larger, shifted)


def of_pictures(sketch):
    x = sketch.input(int(sketch.random.integers(1, 4)), 6, 9, 7)
    for _ in range(5):
        x = PICTURES[sketch.random.integers(len(PICTURES))](sketch, x)
    mean = sketch("Flatten", sketch("GlobalAveragePool", x))
    return sketch.done(sketch.linear(mean, 10), activation(sketch, x))


def attention(sketch, x):
    q, k, v = (sketch.linear(x, 32) for _ in range(3))
    y = sketch.linear(sketch("Attention", q, k, v, heads=2, scale=0.25), 24)
    return sketch("Add", x, y)


def norm(sketch, x):
    return sketch("LayerNormalization", x, sketch.vector(24), sketch.vector(24), axis=-1)


def mlp(sketch, x):
    hidden = sketch("Gelu", sketch.linear(norm(sketch, x), 50))
    return sketch("Add", x, sketch.linear(hidden, 24))


def turned(sketch, x):
    flipped = sketch("Transpose", x, perm=[0, 2, 1])
    tokens = sketch.shape(flipped)[-1]
    return sketch("Transpose", sketch.linear(flipped, tokens), perm=[0, 2, 1])


TEXTS = (attention, mlp, turned, norm)


def of_texts(sketch):
    x = sketch.input(int(sketch.random.integers(1, 4)), 9, 24)
    for _ in range(4):
        x = TEXTS[sketch.random.integers(len(TEXTS))](sketch, x)
    return sketch.done(sketch.linear(norm(sketch, x), 10))


@pytest.mark.parametrize("make", [of_pictures, of_texts])
@pytest.mark.parametrize("seed", range(20))
def test_chains(check, kind, sketches, make, seed):
    check(make(sketches(seed)), kind, threads=[1, 2], room=20)


def test_value_that_several_read(check, kind, sketch):
    """Once with a border and once without, and as the graph's output."""
    x = sketch.conv(sketch.input(2, 8, 6, 7), 24, 1)
    wide, narrow = sketch.conv(x, 16, 5), sketch.conv(x, 16, (1, 3))
    check(sketch.done(x, sketch("Add", wide, narrow), sketch("GlobalAveragePool", x)), kind)


def test_output_that_is_an_input(check, sketch):
    x = sketch.input(2, 8, 6, 7)
    check(sketch.done(sketch("Reshape", x, sketch.constant([2, 8, 6, 7]))), "float32")


def test_constant_that_is_no_weight(check, kind, sketch):
    x = sketch.linear(sketch.input(1, 7, 24), 24)
    joined = sketch("Concat", sketch.vector(1, 1, 24), x, axis=1)
    check(sketch.done(sketch.linear(sketch("Add", joined, sketch.vector(1, 8, 24)), 16)), kind)


def test_a_kernel_adds_what_is_computed_beside_it(sketch):
    x = sketch.input(1, 8, 6, 7)
    last = sketch("Add", sketch.conv(x, 8, 1), x)
    assert [(stage.output, stage.tail.addend) for stage in stages_of(sketch.done(last))] == [
        (last, x)
    ]


def test_steps_are_named_after_values(sketch):
    y = sketch.conv(sketch.input(1, 16, 6, 6), 8)
    compiled = lower(sketch.done(y), {}, OPERATIONS)
    assert list(zip(compiled.program.names, compiled.steps, strict=True)) == [
        ("copy", "in0"),
        ("border", y),
        ("convolution", y),
        ("copy", y),
    ]


def test_profile_has_every_step(sketch):
    compiled = lower(sketch.done(sketch.conv(sketch.input(1, 16, 6, 6), 8)), {}, OPERATIONS)
    buffers = [np.zeros((1, 16, 6, 6), np.float32), np.empty((1, 8, 6, 6), np.float32)]
    seconds = compiled.program.profile(buffers, kernels.Workers(2))
    assert len(seconds) == len(compiled.steps)
    assert all(second >= 0 for second in seconds)


@pytest.mark.parametrize("kind", ["float32", "bytes"])
@pytest.mark.parametrize("make", [of_pictures, of_texts])
def test_one_program_on_several_threads(sketches, runs, kind, make):
    """Each thread has its own workers, and all get the same bits as one thread alone."""
    graph = make(sketches(3))
    run = runs(graph, kind)
    expected = [run(seed, kernels.Workers(1)) for seed in range(4)]

    def repeat(seed):
        workers = kernels.Workers(1 + seed % 3)
        return [run(seed, workers) for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        for seed, answers in enumerate(pool.map(repeat, range(4))):
            for answer in answers:
                for name, array in answer.items():
                    np.testing.assert_array_equal(array, expected[seed][name])
