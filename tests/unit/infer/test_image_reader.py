"""Images of all kinds as a model takes them, against Pillow."""

from __future__ import annotations

import io
import struct
import threading
import zlib

import numpy as np
import pytest
from PIL import Image

from slipstream import _kernels
from slipstream.errors import UsageError
from slipstream.infer.images import reader as reader_module
from slipstream.infer.images.reader import (
    MOST_PIXELS,
    ImageOptions,
    ImageReader,
    TooManyPixelsError,
)

SIZES = [(375, 500), (500, 375), (224, 224), (30, 40), (1000, 333), (5, 7), (1, 1)]


def noise(rows, columns, channels, seed=0):
    """Return pixels that all differ, and are smooth enough for JPEG."""
    random = np.random.default_rng(seed)
    small = random.integers(0, 256, (rows // 8 + 1, columns // 8 + 1, 3), np.uint8)
    image = Image.fromarray(small).resize((columns, rows), Image.Resampling.BICUBIC)
    pixels = np.array(image) ^ random.integers(0, 8, (rows, columns, 3), np.uint8)
    return pixels if channels == 3 else np.ascontiguousarray(pixels[..., :1])


def image_of(pixels):
    return Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[..., 0])


def file_of(pixels, kind, **options):
    file = io.BytesIO()
    image_of(pixels).save(file, kind, **options)
    return file.getvalue()


def by_pillow(image, reader):
    """Resize, then cut: in two steps, and in Pillow's bytes."""
    columns, rows = image.size
    ratio = max(reader.size / min(rows, columns), reader.height / rows, reader.width / columns)
    whole = round(columns * ratio), round(rows * ratio)
    left, top = (whole[0] - reader.width) // 2, (whole[1] - reader.height) // 2
    box = (left, top, left + reader.width, top + reader.height)
    cut = image.resize(whole, Image.Resampling.BILINEAR).crop(box)
    return np.asarray(cut).reshape(reader.height, reader.width, -1)


def farthest(found, expected):
    return np.abs(found.astype(int) - expected.astype(int)).max()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("rows", "columns"), SIZES)
@pytest.mark.parametrize(("height", "width", "size"), [(224, 224, 256), (31, 57, 64), (8, 8, 8)])
def test_pixels_are_within_one_level_of_pillows(rows, columns, channels, height, width, size):
    reader = ImageReader(size=size, height=height, width=width, channels=channels)
    pixels = noise(rows, columns, channels)
    assert farthest(reader(pixels), by_pillow(image_of(pixels), reader)) <= 1


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("seed", range(40))
def test_any_box_is_within_one_level_of_pillows(seed, channels):
    random = np.random.default_rng(seed)
    rows, columns, height, width = random.integers(1, 90, 4)
    pixels = random.integers(0, 256, (rows, columns, channels), np.uint8)
    (top, bottom), (left, right) = (np.sort(random.uniform(0, size, 2)) for size in (rows, columns))
    target = np.zeros((height, width, channels), np.uint8)
    _kernels.resize(pixels, (top, left, bottom, right), target)
    box = (left, top, right, bottom)
    expected = image_of(pixels).resize((width, height), Image.Resampling.BILINEAR, box)
    assert farthest(target, np.asarray(expected).reshape(target.shape)) <= 1


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP"])
@pytest.mark.parametrize("channels", [1, 3])
def test_files_are_decoded_as_pillow_does(kind, channels):
    reader = ImageReader(size=64, height=56, width=48, channels=channels)
    data = file_of(noise(90, 120, channels), kind)
    found = reader(data)
    assert farthest(found, by_pillow(Image.open(io.BytesIO(data)), reader)) <= 1
    np.testing.assert_array_equal(reader(memoryview(data)), found)
    np.testing.assert_array_equal(reader(bytearray(data)), found)


def test_colours_become_what_the_model_takes():
    grey = ImageReader(size=8, height=8, width=8, channels=1)
    colour = ImageReader(size=8, height=8, width=8, channels=3)
    red = np.full((20, 20, 3), (255, 0, 0), np.uint8)
    for kind in ("JPEG", "PNG"):
        assert abs(int(grey(file_of(red, kind))[0, 0, 0]) - 76) <= 2
        found = colour(file_of(np.full((20, 20, 1), 90, np.uint8), kind))
        assert farthest(found, np.full((8, 8, 3), 90)) <= 1


def test_colours_of_print_are_left_to_pillow():
    file = io.BytesIO()
    Image.new("CMYK", (20, 20), (0, 255, 255, 0)).save(file, "JPEG")
    found = ImageReader(size=8, height=8, width=8, channels=3)(file.getvalue())
    assert farthest(found, np.full((8, 8, 3), (255, 0, 0))) <= 3


def test_large_files_are_decoded_smaller_and_look_the_same():
    reader = ImageReader(size=64, height=56, width=56, channels=3)
    data = file_of(noise(1200, 1600, 3), "JPEG", quality=95)
    away = reader(data).astype(int) - by_pillow(Image.open(io.BytesIO(data)), reader)
    assert np.abs(away).mean() < 1.5


def test_results_go_where_the_caller_wants_them():
    reader = ImageReader(size=8, height=8, width=8, channels=3)
    target = np.zeros((8, 8, 3), np.uint8)
    assert reader(noise(20, 20, 3), target) is target
    assert target.any()
    np.testing.assert_array_equal(reader(noise(20, 20, 3)), target)


def test_arrays_with_gaps_are_read_right():
    reader = ImageReader(size=8, height=8, width=8, channels=3)
    pixels = noise(40, 40, 3)
    turned = pixels[::2, ::-1]
    np.testing.assert_array_equal(reader(turned), reader(np.ascontiguousarray(turned)))
    grey = ImageReader(size=8, height=8, width=8, channels=1)
    np.testing.assert_array_equal(grey(pixels[..., 0]), grey(pixels[..., :1]))


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (b"no image", "Pillow cannot read the image: its 8 bytes are of no format that it knows"),
        (b"", "Pillow cannot read the image"),
        (b"\xff\xd8\xff\xe0damaged", "Pillow cannot read the image"),
        (np.zeros((8, 8), np.uint8), r"uint8 \(8, 8\); allowed: uint8 \(rows, columns, 3\)"),
        (np.zeros((8, 8, 3), np.float32), "float32"),
        (np.zeros((0, 8, 3), np.uint8), r"\(0, 8, 3\)"),
        (np.zeros((1, 8, 8, 3), np.uint8), r"\(1, 8, 8, 3\)"),
    ],
)
def test_what_is_no_image_is_said_to_be_none(image, message):
    with pytest.raises(UsageError, match=message):
        ImageReader(size=8, height=8, width=8, channels=3)(image)


def png_of(columns, rows):
    """Return a file that claims this number of pixels and has none of them."""

    def chunk(name, data):
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    head = struct.pack(">IIBBBBB", columns, rows, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"")


def jpeg_of(columns, rows):
    """Return a file whose head claims this number of pixels."""
    data = bytearray(file_of(noise(16, 16, 3), "JPEG"))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = struct.pack(">HH", rows, columns)
    return bytes(data)


@pytest.mark.parametrize("make", [png_of, jpeg_of])
@pytest.mark.parametrize(("columns", "rows"), [(8192, 8193), (20000, 20000), (65500, 65500)])
def test_files_of_too_many_pixels_are_not_decoded(make, columns, rows):
    reader = ImageReader(size=8, height=8, width=8, channels=3)
    with pytest.raises(TooManyPixelsError, match=f"{columns * rows} pixels.*most {MOST_PIXELS}"):
        reader(make(columns, rows))


def test_as_many_pixels_as_are_allowed_are_decoded():
    file = io.BytesIO()
    Image.new("1", (8192, 8192)).save(file, "PNG")
    assert not ImageReader(size=8, height=8, width=8, channels=1)(file.getvalue()).any()


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_large_files_wait_for_one_another_and_small_ones_do_not(kind, monkeypatch):
    reader = ImageReader(size=8, height=8, width=8, channels=3)
    small, large = (file_of(noise(side, side, 3), kind) for side in (16, 17))
    monkeypatch.setattr(reader_module, "LARGE_PIXELS", 16 * 16)
    done = []
    waits = threading.Thread(target=lambda: done.append(reader(large)))
    with reader_module._large:
        waits.start()
        reader(small)
        assert not done
    waits.join()
    assert len(done) == 1


def test_a_file_that_ends_early_is_refused():
    data = file_of(noise(64, 64, 3), "JPEG")
    with pytest.raises(UsageError, match="Pillow cannot read"):
        ImageReader(size=8, height=8, width=8, channels=3)(data[: len(data) // 2])


def test_the_size_is_a_seventh_more_by_default():
    assert ImageReader.of(ImageOptions(), 224, 224, 3).size == 256
    assert ImageReader.of(ImageOptions(), 320, 112, 3).size == 128
    assert ImageReader.of(ImageOptions(size=28), 28, 28, 1).size == 28
