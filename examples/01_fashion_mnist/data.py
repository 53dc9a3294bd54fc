"""Fashion-MNIST: find or download it, divide it among the workers, and augment its batches."""

import gzip
import hashlib
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
CACHE_FOLDER = Path.home() / ".cache" / "slipstream" / "fashion-mnist"
MIRRORS = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
)
SHA256 = {
    "train-images-idx3-ubyte.gz": (
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"
    ),
    "train-labels-idx1-ubyte.gz": (
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"
    ),
    "t10k-images-idx3-ubyte.gz": (
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"
    ),
    "t10k-labels-idx1-ubyte.gz": (
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"
    ),
}
MEAN, DEVIATION = 0.2860, 0.3530  # of the training images, on a scale of 0 to 1


class DataError(RuntimeError):
    """The data set is not on this machine and cannot be downloaded."""


def fetch() -> None:
    """Download the files that are not on this machine; raises DataError if a download fails."""
    for name in SHA256:
        _locate(name)


def load(split: str, limit: int | None = None) -> tuple[Tensor, Tensor]:
    """Read one split of the data set.

    Args:
        split: Name of the split: "train" (60,000 images) or "t10k" (10,000).
        limit: Number of images to keep, the first ones; None keeps all (default).

    Returns:
        Images uint8 [n, 1, 28, 28] and labels int64 [n].

    Raises:
        DataError: The files are missing and cannot be downloaded.
    """
    images = _read(_locate(f"{split}-images-idx3-ubyte.gz"), header_bytes=16)
    labels = _read(_locate(f"{split}-labels-idx1-ubyte.gz"), header_bytes=8)
    return images.reshape(-1, 1, 28, 28)[:limit], labels.long()[:limit]


def _read(path: Path, header_bytes: int) -> Tensor:
    with gzip.open(path) as stream:
        return torch.from_numpy(np.frombuffer(stream.read(), np.uint8)[header_bytes:].copy())


def _locate(name: str) -> Path:
    for folder in (DEBIAN_FOLDER, CACHE_FOLDER):
        if (folder / name).exists():
            return folder / name
    failures: list[str] = []
    for mirror in MIRRORS:
        try:
            return _download(f"{mirror}/{name}", CACHE_FOLDER / name)
        except (OSError, DataError) as error:
            failures.append(f"  {mirror}: {error}")
    raise DataError(
        f"Fashion-MNIST file {name} is not in {DEBIAN_FOLDER} or {CACHE_FOLDER}, and the download "
        "failed:\n" + "\n".join(failures) + "\nOn Debian or Ubuntu run 'apt-get install "
        f"dataset-fashion-mnist'; elsewhere put the four .gz files into {CACHE_FOLDER}."
    )


def _download(url: str, target: Path) -> Path:
    with urllib.request.urlopen(url, timeout=30) as response:
        content: bytes = response.read()
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256[target.name]:
        raise DataError(f"SHA-256 is {digest}, expected {SHA256[target.name]}")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(f".{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(target)  # atomic: another worker sees the complete file or no file
    return target


def normalise(images: Tensor) -> Tensor:
    """Turn uint8 images into floats with mean 0 and deviation 1, channels last."""
    floats = images.float().div_(255).sub_(MEAN).div_(DEVIATION)
    return floats.contiguous(memory_format=torch.channels_last)


def augment(images: Tensor, generator: torch.Generator, padding: int = 1) -> Tensor:
    """Flip half of the images at random, and shift each by up to `padding` pixels.

    Args:
        images: Batch of images, uint8 [batch, 1, 28, 28].
        generator: Source of randomness.
        padding: Largest shift in pixels (default 1).
    """
    count, _, height, width = images.shape
    padded = functional.pad(images, (padding,) * 4)
    top, left = torch.randint(0, 2 * padding + 1, (2, count, 1), generator=generator)
    rows = top + torch.arange(height)
    columns = left + torch.arange(width)
    flipped = torch.rand(count, 1, generator=generator) < 0.5
    columns = torch.where(flipped, columns.flip(1), columns)
    picked = torch.arange(count)[:, None, None]
    return padded[picked, 0, rows[:, :, None], columns[:, None, :]].unsqueeze(1)


def batches(
    images: Tensor, labels: Tensor, *, batch_size: int, rank: int, world_size: int, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield this worker's augmented batches of one epoch.

    All workers draw the same order from `seed`, and each takes every world_size-th image of it, so
    together they see each image once. Images that do not fill a batch on every worker are left out.
    """
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    share = order[rank::world_size]
    generator = torch.Generator().manual_seed(seed * world_size + rank)
    for step in range(len(images) // (batch_size * world_size)):
        chosen = share[step * batch_size : (step + 1) * batch_size]
        yield normalise(augment(images[chosen], generator)), labels[chosen]
