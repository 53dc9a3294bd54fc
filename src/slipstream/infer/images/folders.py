"""Folders of images as samples, in the dtype and layout of a model's input."""

# NumPy's stubs do not state all types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.engines.modules import missing
from slipstream.infer.graph.graph import Array, Value
from slipstream.infer.images.reader import ImageOptions, ImageReader, per_channel

ENDINGS = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}


@dataclass(frozen=True)
class Folder:
    """Images of a folder. A call with an index returns the image at this index and its label.

    Args:
        files: Image files, each with its label. The label is None if the image is in no sub-folder.
        classes: Names of the classes, in the order of their labels from 0. The tuple is empty if
            images are in no sub-folders, or if the sub-folders' names are numbers (the labels).
        read: Reader that returns the pixels of a file.
        has_channels_first: Whether the channels' axis comes before the axes of the rows and
            columns.
        dtype: Dtype of the model's input. Pixels are not normalised for uint8.
        options: Options for reading images.
    """

    files: tuple[tuple[Path, int | None], ...]
    classes: tuple[str, ...]
    read: ImageReader
    has_channels_first: bool
    dtype: np.dtype[np.generic]
    options: ImageOptions

    def __len__(self) -> int:
        return len(self.files)

    def __call__(self, index: int) -> tuple[Array, int | None]:
        """Return an image without a batch dimension, and its label."""
        path, label = self.files[index]
        try:
            pixels: Array = self.read(path.read_bytes())
        except (UsageError, OSError) as error:
            raise UsageError(f"{path}: {error}") from error
        if self.dtype != np.uint8:
            mean, std = (
                per_channel(values, self.read.channels)
                for values in (self.options.mean, self.options.std)
            )
            pixels = ((pixels.astype(np.float32) / 255 - mean) / std).astype(self.dtype)
        return (pixels.transpose(2, 0, 1) if self.has_channels_first else pixels), label


def read_folder(folder: Path, value: Value, options: ImageOptions) -> Folder:
    """Return the images of a folder for an input (n, channels, h, w) or (n, h, w, channels).

    Raises UsageError if the input has another shape, if the folder has no images, or if Pillow is
    not installed.
    """
    reason = missing("PIL")
    if reason is not None:
        raise UsageError(reason)
    shape = value.fixed or ()
    is_first = len(shape) == 4 and shape[1] in (1, 3)
    if len(shape) != 4 or not (is_first or shape[3] in (1, 3)):
        raise UsageError(
            f"{folder}: the model's input of shape {shape} is no image of 1 or 3 channels; give"
            " .npy or .npz files"
        )
    channels, height, width = shape[1:] if is_first else (shape[3], *shape[1:3])
    names = _sub_folders(folder)
    files = _labelled(folder, names)
    if not files:
        raise UsageError(f"{folder}: there are no images ({', '.join(sorted(ENDINGS))})")
    dtype = value.dtype or np.dtype(np.float32)
    reader = ImageReader.of(options, height, width, channels)
    classes = () if _are_numbers(names) else tuple(names)
    return Folder(tuple(files), classes, reader, is_first, dtype, options)


def _sub_folders(folder: Path) -> list[str]:
    """Return the names of the sub-folders with images, in the order of their labels.

    The list is empty if the folder contains images itself.
    """
    if _images(folder):
        return []
    names = [path.name for path in folder.iterdir() if path.is_dir() and _images(path)]
    return sorted(names, key=int if _are_numbers(names) else str)


def _are_numbers(names: Sequence[str]) -> bool:
    return all(name.isdecimal() for name in names)


def _labelled(folder: Path, names: Sequence[str]) -> list[tuple[Path, int | None]]:
    """Return every image with its label.

    Images of different labels alternate, so that the first images of the list represent all labels
    about equally.
    """
    if not names:
        return [(path, None) for path in _images(folder)]
    are_numbers = _are_numbers(names)
    rows = [
        (turn, path, int(name) if are_numbers else number)
        for number, name in enumerate(names)
        for turn, path in enumerate(_images(folder / name))
    ]
    return [(path, label) for _, path, label in sorted(rows, key=lambda row: (row[0], row[2]))]


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS)
