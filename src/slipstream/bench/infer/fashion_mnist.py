"""The test set of Fashion-MNIST as JPEG files.

    python -m slipstream.bench.infer.fashion_mnist FOLDER [COUNT]

The folder gets a subfolder of JPEG files for each of the ten labels. `slipstream compile --data`
and `slipstream bench infer --images` read folders with a subfolder for each label. Source: Xiao,
Rasul and Vollgraf, "Fashion-MNIST" (2017).
"""

# NumPy's type stubs leave result types unspecified.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import gzip
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slipstream.errors import UsageError

FOLDERS = (
    Path("/usr/share/datasets/fashion-mnist"),
    Path.home() / ".cache" / "slipstream" / "fashion-mnist",
)
IMAGES, LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"
SIDE = 28
QUALITY = 95


def main(arguments: Sequence[str]) -> None:
    """Write images of the test set to a folder.

    Args:
        arguments: Path of the folder and, optionally, the number of images (default: all 10,000).
    """
    if len(arguments) not in (1, 2):
        raise UsageError(f"{len(arguments)} arguments are given; allowed: FOLDER [COUNT]")
    images, labels = read_test_set()
    count = int(arguments[1]) if len(arguments) > 1 else len(labels)
    write_images(Path(arguments[0]), images[:count], labels[:count])
    print(f"{min(count, len(labels))} images are in {arguments[0]}")


def read_test_set(folders: Sequence[Path] = FOLDERS) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the images, uint8 [10000, 28, 28], and their labels, uint8 [10000].

    Raises:
        UsageError: none of `folders` has the files of Fashion-MNIST.
    """
    folder = next((folder for folder in folders if (folder / IMAGES).exists()), None)
    if folder is None:
        raise UsageError(
            f"{IMAGES} is in none of {', '.join(map(str, folders))}; install Debian's"
            " dataset-fashion-mnist, or run examples/01_fashion_mnist/train.py, which fetches it"
        )
    images = _read(folder / IMAGES, header_bytes=16)
    return images.reshape(-1, SIDE, SIDE), _read(folder / LABELS, header_bytes=8)


def write_images(folder: Path, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> None:
    """Write images as JPEG files.

    Args:
        folder: Folder in which each label gets a subfolder. Existing files with other names stay.
        images: Pixels, uint8 [n, rows, columns].
        labels: Labels, uint8 [n].
    """
    from PIL import Image

    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        target = folder / str(int(label))
        target.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(target / f"{number:05d}.jpg", quality=QUALITY)


def _read(path: Path, header_bytes: int) -> NDArray[np.uint8]:
    with gzip.open(path) as stream:
        return np.frombuffer(stream.read(), np.uint8)[header_bytes:]


if __name__ == "__main__":
    main(sys.argv[1:])
