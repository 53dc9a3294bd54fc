"""Conv and ConvTranspose, of all channels and of each by itself."""

from __future__ import annotations

import pytest

CHANNELS = (1, 3, 5, 16, 17, 24, 40, 64, 100)


@pytest.mark.sweep
@pytest.mark.parametrize("into", CHANNELS)
@pytest.mark.parametrize("channels", CHANNELS)
def test_channels(check, kind, sketch, channels, into):
    x = sketch.input(1, channels, 5, 6)
    check(sketch.done(sketch.conv(x, into)), kind)


@pytest.mark.sweep
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 3, 5, (1, 5), (3, 1), 7])
@pytest.mark.parametrize("channels", [3, 24])
def test_windows(check, kind, sketch, channels, kernel, stride):
    x = sketch.input(3, channels, 9, 11)
    check(sketch.done(sketch.conv(x, 20, kernel, strides=[stride, stride])), kind)


@pytest.mark.sweep
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 3, 5, (1, 5), (3, 1), 7])
@pytest.mark.parametrize("channels", [3, 24, 100])
def test_depthwise_windows(check, kind, sketch, channels, kernel, stride):
    x = sketch.input(3, channels, 9, 11)
    check(sketch.done(sketch.conv(x, channels, kernel, channels, strides=[stride, stride])), kind)


@pytest.mark.sweep
@pytest.mark.parametrize("channels", CHANNELS[1:])
@pytest.mark.parametrize("columns", [1, 2, 3, 7, 8, 9, 13, 17])
def test_depthwise_columns(check, kind, sketch, channels, columns):
    x = sketch.input(1, channels, 3, columns)
    check(sketch.done(sketch.conv(x, channels, 3, channels)), kind)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "more",
    [
        {"pads": [2, 0, 1, 3]},
        {"pads": [0, 1, 2, 0], "strides": [2, 1]},
        {"pads": [0, 0, 0, 0]},
        {"dilations": [2, 2]},
        {"dilations": [1, 2], "pads": [1, 2, 1, 2]},
        {"dilations": [2, 1], "strides": [1, 2]},
        {"auto_pad": "SAME_UPPER"},
        {"auto_pad": "SAME_LOWER"},
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
        {"auto_pad": "SAME_LOWER", "strides": [2, 3]},
        {"auto_pad": "VALID"},
    ],
    ids=str,
)
@pytest.mark.parametrize("channels", [3, 17])
@pytest.mark.parametrize("depthwise", [False, True])
def test_padding(check, kind, sketch, more, channels, depthwise):
    x = sketch.input(2, channels, 8, 7)
    check(sketch.done(sketch.conv(x, channels, 3, channels if depthwise else 1, **more)), kind)


@pytest.mark.parametrize("size", [(1, 1), (1, 2), (2, 1), (1, 9), (3, 3)])
@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("depthwise", [False, True])
def test_small_pictures(check, kind, sketch, size, kernel, depthwise):
    x = sketch.input(3, 24, *size)
    check(sketch.done(sketch.conv(x, 24, kernel, 24 if depthwise else 1)), kind)


@pytest.mark.parametrize("kernel", [(1, 1), (3, 3)])
def test_many_pixels(check, kind, sketch, kernel):
    """More than one piece of work for every thread."""
    x = sketch.input(2, 16, 33, 31)
    check(sketch.done(sketch.conv(x, 80, kernel)), kind)


def test_without_bias(check, kind, sketch):
    x = sketch.input(1, 8, 4, 4)
    check(sketch.done(sketch("Conv", x, sketch.weights(8, 8, 3, 3))), kind)


@pytest.mark.parametrize("factor_first", [False, True])
@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("tail", ["", "shift", "LeakyRelu", "shift LeakyRelu", "shift add"])
def test_factor(check, kind, sketch, factor_first, depthwise, tail):
    """The factor is one number per channel, which is known only when the program runs."""
    x, factor = sketch.input(1, 24, 6, 5), sketch.input(1, 24, 1, 1)
    y = sketch.conv(x, 24, 3, 24 if depthwise else 1)
    y = sketch("Mul", *((factor, y) if factor_first else (y, factor)))
    if "shift" in tail:
        y = sketch("Add", y, sketch.vector(1, 24, 1, 1))
    if "LeakyRelu" in tail:
        y = sketch("LeakyRelu", y, alpha=0.2)
    if "add" in tail:
        y = sketch("Add", y, x)
    check(sketch.done(y), kind, room=2)


@pytest.mark.parametrize("batch", [1, 2])
def test_factor_of_each_picture(check, kind, sketch, batch):
    x, factor = sketch.input(batch, 16, 4, 4), sketch.input(batch, 16, 1, 1)
    check(sketch.done(sketch("Mul", sketch.conv(x, 16), factor)), kind, room=2)


def transposed(sketch, x, into, kernel, *, depthwise=False, **more):
    channels = sketch.shape(x)[1]
    group = channels if depthwise else 1
    size = (kernel, kernel) if isinstance(kernel, int) else kernel
    weights = sketch.weights(channels, into // group, *size)
    return sketch("ConvTranspose", x, weights, sketch.vector(into), group=group, **more)


@pytest.mark.sweep
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4, (2, 3), (4, 1), 5])
@pytest.mark.parametrize("depthwise", [False, True])
def test_transposed_windows(check, kind, sketch, kernel, stride, depthwise):
    x = sketch.input(2, 20, 4, 5)
    y = transposed(sketch, x, 20, kernel, depthwise=depthwise, strides=[stride, stride])
    check(sketch.done(y), kind)


@pytest.mark.parametrize(
    "more",
    [
        {"pads": [1, 1, 1, 1]},
        {"pads": [1, 0, 2, 1]},
        {"pads": [3, 3, 0, 0]},
        {"pads": [1, 1, 1, 1], "output_padding": [1, 1]},
        {"output_padding": [1, 0]},
        {"strides": [3, 1]},
        {"strides": [1, 2], "pads": [0, 1, 1, 0]},
    ],
    ids=str,
)
@pytest.mark.parametrize("depthwise", [False, True])
def test_transposed_padding(check, kind, sketch, more, depthwise):
    x = sketch.input(1, 16, 5, 4)
    more = {"strides": [2, 2], **more}
    check(sketch.done(transposed(sketch, x, 16, 4, depthwise=depthwise, **more)), kind)


@pytest.mark.parametrize(("channels", "into"), [(3, 5), (17, 40), (64, 3)])
def test_transposed_channels(check, kind, sketch, channels, into):
    x = sketch.input(1, channels, 3, 3)
    check(sketch.done(transposed(sketch, x, into, 3, strides=[2, 2])), kind)


@pytest.mark.parametrize("tail", ["factor", "LeakyRelu", "add"])
def test_transposed_tail(check, kind, sketch, tail):
    x = sketch.input(1, 16, 4, 4)
    y = transposed(sketch, x, 16, 4, strides=[2, 2], pads=[1, 1, 1, 1])
    if tail == "factor":
        y = sketch("Mul", y, sketch.input(1, 16, 1, 1))
    elif tail == "add":
        y = sketch("Add", y, sketch.conv(sketch.input(1, 16, 8, 8), 16))
    else:
        y = sketch("LeakyRelu", y)
    check(sketch.done(y), kind, room=2)
