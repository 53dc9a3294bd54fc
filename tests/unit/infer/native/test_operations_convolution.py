"""Conv, of all channels and of each by itself."""

from __future__ import annotations

import pytest

CHANNELS = (1, 3, 5, 16, 17, 24, 40, 64, 100)


@pytest.mark.parametrize("into", CHANNELS)
@pytest.mark.parametrize("channels", CHANNELS)
def test_channels(check, kind, sketch, channels, into):
    x = sketch.input(1, channels, 5, 6)
    check(sketch.done(sketch.conv(x, into)), kind)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 3, 5, 7, (1, 5), (3, 1)])
@pytest.mark.parametrize("channels", [3, 24])
def test_windows(check, kind, sketch, channels, kernel, stride):
    x = sketch.input(3, channels, 9, 11)
    check(sketch.done(sketch.conv(x, 20, kernel, strides=[stride, stride])), kind)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 3, 5, 7, (1, 5), (3, 1)])
@pytest.mark.parametrize("channels", [3, 24, 100])
def test_depthwise_windows(check, kind, sketch, channels, kernel, stride):
    x = sketch.input(3, channels, 9, 11)
    check(sketch.done(sketch.conv(x, channels, kernel, channels, strides=[stride, stride])), kind)


@pytest.mark.parametrize("channels", CHANNELS[1:])
@pytest.mark.parametrize("columns", [1, 2, 3, 7, 8, 9, 13, 17])
def test_depthwise_columns(check, kind, sketch, channels, columns):
    x = sketch.input(1, channels, 3, columns)
    check(sketch.done(sketch.conv(x, channels, 3, channels)), kind)


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
