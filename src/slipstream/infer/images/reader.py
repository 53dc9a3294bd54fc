"""Reader of images for calibration and serving, which decodes, resizes and crops to the centre."""

# The stubs of Pillow and NumPy do not state all types, and simplejpeg has no stubs.
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
# Shorter side of the resized image, divided by that of the crop, as is usual for ImageNet.
MARGIN = 256 / 224
# Largest number of pixels of a file that is decoded. Decoding took 14 bytes of memory per pixel of
# a PNG file and 22 of a WebP file, even if the file was small (8000 x 8000 pixels of one colour,
# Pillow 12).
MOST_PIXELS = 64 << 20
# Files with more pixels than this are decoded one at a time, to bound the memory. Chosen by hand,
# not measured.
LARGE_PIXELS = 4 << 20

Pixels: TypeAlias = npt.NDArray[np.uint8]
ImageSource: TypeAlias = "bytes | bytearray | memoryview | Pixels"


class TooManyPixelsError(UsageError):
    """Error for an image that has too many pixels to be decoded; a smaller image is needed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageOptions:
    """Options for converting an image into numbers.

    Args:
        size: Length in pixels to which the shorter side of an image is resized before the centre is
            cropped (default: 256/224 times the shorter side of the model's input).
        mean: One number for all channels, or one per channel, to subtract from the pixel values,
            which range from 0 to 1 (default: the means of ImageNet).
        std: One number above 0 for all channels, or one per channel, by which pixel values are
            divided after the mean is subtracted (default: the standard deviations of ImageNet). If
            a model takes uint8 itself, its images are not normalised.
    """

    size: int | None = None
    mean: tuple[float, ...] = MEAN
    std: tuple[float, ...] = STD

    def __post_init__(self) -> None:
        if not all(value > 0 for value in self.std):
            raise UsageError(f"std is {self.std}; allowed: numbers above 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageReader:
    """A reader of images for one model. Any number of threads may use a reader at once.

    Args:
        size: Length in pixels to which the shorter side of an image is resized. The image is
            resized to a greater length if the crop would not fit into it otherwise.
        height: Number of rows of the crop.
        width: Number of columns of the crop.
        channels: Number of channels, 1 (grey) or 3 (red, green, blue).
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
            image: Image in one of two forms: the bytes of a file that Pillow reads, such as JPEG or
                PNG; or uint8 pixels of shape (rows, columns, channels), or (rows, columns) if the
                image is grey.
            target: Array to write to, uint8 (height, width, channels), C-contiguous (default: a new
                array).

        If several pixels become one pixel, resizing averages them, like Pillow's BILINEAR filter.
        JPEG files of at least twice the needed size are decoded at 1/2, 1/4 or 1/8 of their size.
        The rotation in EXIF data is ignored. Only one file of more than 4 million pixels is decoded
        at a time. The call blocks, and releases the GIL.

        Raises UsageError for bytes that are no image and for arrays of another type or shape.
        Raises TooManyPixelsError for files of more than 67,108,864 pixels, without decoding them.
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
        """Return a JPEG's pixels, or None if simplejpeg cannot decode it (for example CMYK)."""
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
    """Hold a lock while a large image is decoded; refuse an image with too many pixels."""
    pixels = rows * columns
    if pixels > MOST_PIXELS:
        raise TooManyPixelsError(
            f"the image has {rows} rows and {columns} columns, {pixels} pixels; allowed: at most"
            f" {MOST_PIXELS}; send a smaller image"
        )
    with _large if pixels > LARGE_PIXELS else nullcontext():
        yield


def bytes_of(data: bytes | bytearray | memoryview) -> bytes:
    """Return the data as a `bytes` object; a `bytes` object is not copied."""
    return data if isinstance(data, bytes) else bytes(data)


def per_channel(values: tuple[float, ...], channels: int) -> Array:
    """Return the values as a float32 array: one number for all channels, or one per channel.

    If the image is grey and there are numbers for several channels, their mean is returned.
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
