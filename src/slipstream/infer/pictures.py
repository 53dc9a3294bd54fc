"""Folders of pictures as samples: read, resized, cut and normalised as training did."""

# The types of Pillow and NumPy are open in places.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.engines.modules import missing
from slipstream.infer.graph import Array, Value

ENDINGS = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True, slots=True)
class PictureOptions:
    """How a picture becomes numbers.

    Args:
        size: pixels to which the shorter side is resized before the middle is cut out; default: a
            seventh more than the model's input, as 256 is to 224.
        mean: that is subtracted from each channel of 0 to 1, default ImageNet's. One for all, or
            one each.
        std: by which each is divided then, default ImageNet's. Models that read bytes get
            neither.
    """

    size: int | None = None
    mean: tuple[float, ...] = MEAN
    std: tuple[float, ...] = STD


@dataclass(frozen=True)
class Pictures:
    """The pictures of a folder, by number."""

    files: tuple[tuple[Path, int | None], ...]
    height: int
    width: int
    channels: int
    is_first: bool  # the channels come before rows and columns
    dtype: np.dtype[np.generic]
    options: PictureOptions

    def __len__(self) -> int:
        return len(self.files)

    def __call__(self, index: int) -> tuple[Array, int | None]:
        """A picture without batch dimension, and its label."""
        path, label = self.files[index]
        pixels = self._cut(path)
        if self.dtype != np.uint8:
            mean, std = (
                _per_channel(each, self.channels) for each in (self.options.mean, self.options.std)
            )
            pixels = ((pixels.astype(np.float32) / 255 - mean) / std).astype(self.dtype)
        return (pixels.transpose(2, 0, 1) if self.is_first else pixels), label

    def _cut(self, path: Path) -> Array:
        """uint8 (height, width, channels)."""
        from PIL import Image, UnidentifiedImageError

        try:
            with Image.open(path) as file:
                picture = file.convert("L" if self.channels == 1 else "RGB")
        except (OSError, UnidentifiedImageError, SyntaxError) as error:
            raise UsageError(f"{path}: Pillow cannot read the picture: {error}") from error
        shorter = self.options.size or round(min(self.height, self.width) * 256 / 224)
        ratio = max(
            shorter / min(picture.size), self.width / picture.width, self.height / picture.height
        )
        size = round(picture.width * ratio), round(picture.height * ratio)
        picture = picture.resize(size, Image.Resampling.BICUBIC)
        left, top = (size[0] - self.width) // 2, (size[1] - self.height) // 2
        picture = picture.crop((left, top, left + self.width, top + self.height))
        return np.asarray(picture).reshape(self.height, self.width, self.channels)


def read_pictures(folder: Path, value: Value, options: PictureOptions) -> Pictures:
    """The pictures of a folder for an input of shape (n, channels, h, w) or (n, h, w, channels).

    Raises UsageError where the input is no picture, or the folder has none.
    """
    reason = missing("PIL")
    if reason is not None:
        raise UsageError(reason)
    shape = value.fixed or ()
    is_first = len(shape) == 4 and shape[1] in (1, 3)
    if len(shape) != 4 or not (is_first or shape[3] in (1, 3)):
        raise UsageError(
            f"{folder}: an input of shape {shape} is no picture of 1 or 3 channels; give .npy or"
            " .npz files"
        )
    channels, height, width = shape[1:] if is_first else (shape[3], *shape[1:3])
    files = _labelled(folder)
    if not files:
        raise UsageError(f"{folder}: there are no pictures ({', '.join(sorted(ENDINGS))})")
    dtype = value.dtype or np.dtype(np.float32)
    return Pictures(tuple(files), height, width, channels, is_first, dtype, options)


def _labelled(folder: Path) -> list[tuple[Path, int | None]]:
    """Every picture with its label: pictures of all labels by turns, so that any first part of
    them is a fair sample."""
    own = _pictures(folder)
    if own:
        return [(path, None) for path in own]
    names = [each.name for each in folder.iterdir() if each.is_dir() and _pictures(each)]
    are_numbers = all(name.isdecimal() for name in names)
    names.sort(key=int if are_numbers else str)
    rows = [
        (turn, path, int(name) if are_numbers else number)
        for number, name in enumerate(names)
        for turn, path in enumerate(_pictures(folder / name))
    ]
    return [(path, label) for _, path, label in sorted(rows, key=lambda row: (row[0], row[2]))]


def _pictures(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS)


def _per_channel(values: tuple[float, ...], channels: int) -> Array:
    if len(values) not in (1, channels):
        if channels != 1:
            raise UsageError(
                f"{values} are numbers for {len(values)} channels; there are {channels}"
            )
        values = (sum(values) / len(values),)
    return np.asarray(values, np.float32)
