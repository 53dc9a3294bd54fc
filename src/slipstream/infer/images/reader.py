"""How an image is read: decoded, resized, its middle cut out, for calibration as for serving."""

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

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.engines.modules import missing
from slipstream.infer.graph.graph import Array

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
JPEG = b"\xff\xd8\xff"
MARGIN = 256 / 224  # of the resized image over what is cut out, as is the custom for ImageNet
# Pixels of a file. Decoding took 14 bytes of memory for each of a PNG, 22 of a WebP, however few
# bytes the file has (files of 8000 x 8000 pixels of one colour, Pillow 12).
MOST_PIXELS = 64 << 20
LARGE_PIXELS = 4 << 20  # files with more are decoded one at a time, so that memory is bounded

Pixels: TypeAlias = npt.NDArray[np.uint8]
ImageSource: TypeAlias = "bytes | bytearray | memoryview | Pixels"


class TooManyPixelsError(UsageError):
    """Send a smaller image: it has more pixels than are decoded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageOptions:
    """How an image becomes numbers.

    Args:
        size: pixels to which the shorter side is resized before the middle is cut out; default: a
            seventh more than the model's input, as 256 is to 224.
        mean: that is subtracted from each channel of 0 to 1, default ImageNet's. One for all, or
            one each.
        std: by which each is divided then, above 0, default ImageNet's. Models that read bytes
            get neither.
    """

    size: int | None = None
    mean: tuple[float, ...] = MEAN
    std: tuple[float, ...] = STD

    def __post_init__(self) -> None:
        if not all(each > 0 for each in self.std):
            raise UsageError(f"std is {self.std}; allowed: numbers above 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageReader:
    """Reads images for one model. Any number of threads may use it at a time.

    Args:
        size: pixels to which the shorter side is resized, or more where the cut needs it.
        height: rows that are cut out of the middle.
        width: columns of that.
        channels: 1 (grey) or 3 (red, green, blue).
    """

    size: int
    height: int
    width: int
    channels: int

    @staticmethod
    def of(options: ImageOptions, height: int, width: int, channels: int) -> ImageReader:
        """The reader for a model's input."""
        size = options.size or round(min(height, width) * MARGIN)
        return ImageReader(size=size, height=height, width=width, channels=channels)

    def __call__(self, image: ImageSource, target: Pixels | None = None) -> Pixels:
        """The pixels of an image as the model takes them.

        Args:
            image: the bytes of a JPEG, PNG or whatever else Pillow reads, or uint8 pixels (rows,
                columns, channels), (rows, columns) where they are grey.
            target: array to write to, uint8 (height, width, channels), C-contiguous; default a new
                one.

        Resizing takes the mean over all pixels that become one (Pillow's BILINEAR). JPEG files of
        twice the needed size or more are decoded to a half, quarter or eighth. A rotation that
        EXIF asks for is not done. Files of over 4 million pixels wait for one another.

        Raises UsageError for bytes that are no image, and for other arrays; TooManyPixelsError
        for files of over 67,108,864 pixels, which are not decoded. Blocks; lets other threads run.
        """
        if target is None:
            target = np.empty((self.height, self.width, self.channels), np.uint8)
        is_array = isinstance(image, np.ndarray)
        pixels = self._checked(image) if is_array else self._decoded(bytes_of(image))
        rows, columns = pixels.shape[:2]
        whole_rows, whole_columns = self._whole(rows, columns)
        top, left = (whole_rows - self.height) // 2, (whole_columns - self.width) // 2
        down, right = rows / whole_rows, columns / whole_columns
        box = (
            top * down,
            left * right,
            (top + self.height) * down,
            (left + self.width) * right,
        )
        _kernels().resize(pixels, box, target)
        return target

    def _whole(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns of the image that the middle is cut out of."""
        ratio = max(self.size / min(rows, columns), self.height / rows, self.width / columns)
        return round(rows * ratio), round(columns * ratio)

    def _checked(self, pixels: Array) -> Pixels:
        shape = pixels.shape if pixels.ndim == 3 else (*pixels.shape, 1)
        if pixels.dtype != np.uint8 or len(shape) != 3 or shape[2] != self.channels or 0 in shape:
            raise UsageError(
                f"the image is {pixels.dtype} {pixels.shape}; allowed: uint8 (rows, columns,"
                f" {self.channels}), or the bytes of a file"
            )
        return np.ascontiguousarray(pixels).reshape(shape)

    def _decoded(self, data: bytes) -> Pixels:
        if data.startswith(JPEG) and missing("simplejpeg") is None:
            pixels = self._of_jpeg(data)
            if pixels is not None:
                return pixels
        return self._of_file(data)

    def _of_jpeg(self, data: bytes) -> Pixels | None:
        """None where Pillow has to look at it: colours of print, damage."""
        import simplejpeg

        try:
            rows, columns, *_ = simplejpeg.decode_jpeg_header(data)
            whole_rows, whole_columns = self._whole(int(rows), int(columns))
            with _room(int(rows), int(columns)):
                return simplejpeg.decode_jpeg(
                    data,
                    "GRAY" if self.channels == 1 else "RGB",
                    min_height=whole_rows,
                    min_width=whole_columns,
                    min_factor=2,  # others are decoded by slower code
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
        except UnidentifiedImageError as error:  # which says where in memory it was
            words = f"its {len(data)} bytes are of no kind of image that it knows"
            raise UsageError(f"Pillow cannot read the image: {words}") from error
        except (OSError, SyntaxError, ValueError) as error:
            raise UsageError(f"Pillow cannot read the image: {error}") from error


_large = threading.Lock()  # held while a large file is decoded


@contextmanager
def _room(rows: int, columns: int) -> Generator[None]:
    """Lets a file be decoded that is not too large, and large ones one after the other."""
    pixels = rows * columns
    if pixels > MOST_PIXELS:
        raise TooManyPixelsError(
            f"the image has {rows} rows and {columns} columns, {pixels} pixels; allowed: at most"
            f" {MOST_PIXELS}. Make it smaller: the model takes less"
        )
    with _large if pixels > LARGE_PIXELS else nullcontext():
        yield


def bytes_of(data: bytes | bytearray | memoryview) -> bytes:
    """The same as bytes."""
    return data if isinstance(data, bytes) else bytes(data)


def per_channel(values: tuple[float, ...], channels: int) -> Array:
    """One number for all channels, or one each, as float32; grey takes the mean of colours'."""
    if len(values) not in (1, channels):
        if channels != 1:
            raise UsageError(
                f"{values} are numbers for {len(values)} channels; there are {channels}"
            )
        values = (sum(values) / len(values),)
    return np.asarray(values, np.float32)


def _kernels() -> Any:
    try:
        from slipstream import _kernels
    except ImportError as error:
        raise UnsupportedError(
            f"this build of Slipstream has no kernels to resize images with ({error}); build it"
            " anew"
        ) from error
    return _kernels
