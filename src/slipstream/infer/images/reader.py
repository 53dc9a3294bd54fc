"""The reader of images, for calibration and serving: it decodes, resizes and crops the centre."""

# The types of Pillow and NumPy are open in places, and simplejpeg has none.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import io
import threading
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from slipstream.errors import UnsupportedError, UsageError, reason_of
from slipstream.infer.engines.modules import missing
from slipstream.infer.graph.graph import Array

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
JPEG = b"\xff\xd8\xff"
MARGIN = 256 / 224  # shorter side of the resized image over that of the crop, as for ImageNet
# Most pixels of a file. Decoding took 14 bytes of memory per pixel of a PNG file and 22 of a WebP
# file, even if the file is small (8000 x 8000 pixels of one colour, Pillow 12).
MOST_PIXELS = 64 << 20
# Pixels from which files are decoded one at a time, to bound the memory. Chosen by hand, not
# measured.
LARGE_PIXELS = 4 << 20

Pixels: TypeAlias = npt.NDArray[np.uint8]
ImageSource: TypeAlias = "bytes | bytearray | memoryview | Pixels"


class TooManyPixelsError(UsageError):
    """An image has more pixels than are decoded; send a smaller one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageOptions:
    """Options for converting an image into numbers.

    Args:
        size: Pixels to which the shorter side is resized before the centre is cropped (default: 8/7
            of the model's input, the ratio of 256 to 224).
        mean: Numbers that are subtracted from the channels, which range from 0 to 1: one for all
            channels, or one per channel (default ImageNet's).
        std: Numbers above 0 by which the channels are divided then, one for all or one per channel
            (default ImageNet's). Models that take bytes use neither.
    """

    size: int | None = None
    mean: tuple[float, ...] = MEAN
    std: tuple[float, ...] = STD

    def __post_init__(self) -> None:
        if not all(value > 0 for value in self.std):
            raise UsageError(f"std is {self.std}; allowed: numbers above 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageReader:
    """A reader of images for one model. Any number of threads may use it at the same time.

    Args:
        size: Pixels to which the shorter side is resized; more if the crop would not fit otherwise.
        height: Rows of the crop.
        width: Columns of the crop.
        channels: Channels of the pixels, 1 (grey) or 3 (red, green, blue).
    """

    size: int
    height: int
    width: int
    channels: int

    @staticmethod
    def of(options: ImageOptions, height: int, width: int, channels: int) -> ImageReader:
        """Return the reader for a model's input."""
        size = options.size or round(min(height, width) * MARGIN)
        return ImageReader(size=size, height=height, width=width, channels=channels)

    def __call__(self, image: ImageSource, target: Pixels | None = None) -> Pixels:
        """Return the pixels of an image in the form that the model takes.

        Args:
            image: Bytes of a JPEG file, PNG file or another file that Pillow reads; or uint8 pixels
                (rows, columns, channels), or (rows, columns) if they are grey.
            target: Array to write to, uint8 (height, width, channels), C-contiguous (default: a new
                array).

        Resizing computes the mean over all pixels that become one (Pillow's BILINEAR). JPEG files
        of at least twice the needed size are decoded to a half, quarter or eighth. The rotation in
        EXIF data is ignored. Files of more than 4 million pixels are decoded one at a time.

        Raises UsageError for bytes that are no image, and for other arrays; TooManyPixelsError
        for files of more than 67,108,864 pixels, which are not decoded. Blocks, and releases the
        GIL.
        """
        if target is None:
            target = np.empty((self.height, self.width, self.channels), np.uint8)
        is_array = isinstance(image, np.ndarray)
        pixels = self._checked(image) if is_array else self._decoded(bytes_of(image))
        rows, columns = pixels.shape[:2]
        resized_rows, resized_columns = self._resized(rows, columns)
        top, left = (resized_rows - self.height) // 2, (resized_columns - self.width) // 2
        down, right = rows / resized_rows, columns / resized_columns
        box = (
            top * down,
            left * right,
            (top + self.height) * down,
            (left + self.width) * right,
        )
        _kernels().resize(pixels, box, target)
        return target

    def _resized(self, rows: int, columns: int) -> tuple[int, int]:
        """Return the rows and columns of the resized image, before the crop."""
        ratio = max(self.size / min(rows, columns), self.height / rows, self.width / columns)
        return round(rows * ratio), round(columns * ratio)

    def _checked(self, pixels: Array) -> Pixels:
        shape = pixels.shape if pixels.ndim == 3 else (*pixels.shape, 1)
        if pixels.dtype != np.uint8 or len(shape) != 3 or shape[2] != self.channels or 0 in shape:
            raise UsageError(
                f"the image is {pixels.dtype} {pixels.shape}; allowed: uint8 (rows, columns,"
                f" {self.channels}), or the bytes of an image file"
            )
        return np.ascontiguousarray(pixels).reshape(shape)

    def _decoded(self, data: bytes) -> Pixels:
        if data.startswith(JPEG) and missing("simplejpeg") is None:
            pixels = self._of_jpeg(data)
            if pixels is not None:
                return pixels
        return self._of_file(data)

    def _of_jpeg(self, data: bytes) -> Pixels | None:
        """Return the pixels; None if Pillow must read the file: for colours of print, or damage."""
        import simplejpeg

        try:
            rows, columns, *_ = simplejpeg.decode_jpeg_header(data)
            resized_rows, resized_columns = self._resized(int(rows), int(columns))
            with _room(int(rows), int(columns)):
                return simplejpeg.decode_jpeg(
                    data,
                    "GRAY" if self.channels == 1 else "RGB",
                    min_height=resized_rows,
                    min_width=resized_columns,
                    min_factor=2,  # other factors use slower code
                )
        except ValueError:
            return None

    def _of_file(self, data: bytes) -> Pixels:
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(io.BytesIO(data)) as file, _room(file.height, file.width):
                image = file.convert("L" if self.channels == 1 else "RGB")
                return np.asarray(image).reshape(image.height, image.width, self.channels)
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise TooManyPixelsError(f"{error}; allowed: at most {MOST_PIXELS} pixels") from error
        except UnidentifiedImageError as error:  # its message has an address in memory
            reason = f"its {len(data)} bytes are of no format that it knows"
            raise UsageError(f"Pillow cannot read the image: {reason}") from error
        except (OSError, SyntaxError, ValueError) as error:
            raise UsageError(f"Pillow cannot read the image: {reason_of(error)}") from error


_large = threading.Lock()  # held while a large file is decoded


@contextmanager
def _room(rows: int, columns: int) -> Generator[None]:
    """Admit a file that is not too large to be decoded; large files wait for one another."""
    pixels = rows * columns
    if pixels > MOST_PIXELS:
        raise TooManyPixelsError(
            f"the image has {rows} rows and {columns} columns, {pixels} pixels; allowed: at most"
            f" {MOST_PIXELS}; send a smaller image"
        )
    with _large if pixels > LARGE_PIXELS else nullcontext():
        yield


def bytes_of(data: bytes | bytearray | memoryview) -> bytes:
    """Return the data as bytes; bytes are not copied."""
    return data if isinstance(data, bytes) else bytes(data)


def per_channel(values: tuple[float, ...], channels: int) -> Array:
    """Return one number for all channels, or one per channel, as float32.

    A grey image takes the mean of the numbers for colours.
    """
    if len(values) not in (1, channels):
        if channels != 1:
            raise UsageError(
                f"{values} are numbers for {len(values)} channels; the image has {channels}"
            )
        values = (sum(values) / len(values),)
    return np.asarray(values, np.float32)


def _kernels() -> Any:
    try:
        from slipstream import _kernels
    except ImportError as error:
        raise UnsupportedError(
            f"this build of Slipstream has no kernels that resize images ({error}); build it again"
        ) from error
    return _kernels
