"""JPEG files for benchmarks: noise with colours and detail as photographs have them."""

# NumPy's stubs leave the types of what its functions return open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROWS, COLUMNS = 375, 500  # ImageNet's most frequent size
QUALITY = 92
SLOPE = 1.5  # of amplitude over frequency; makes files of about 57 kB
MEAN, DEVIATION = 118.0, 52.0  # of pixels
COLOUR = 0.35  # of each channel's own noise, beside what all have in common


def photograph(seed: int) -> NDArray[np.uint8]:
    """Return pixels of shape (375, 500, 3); another picture for each seed.

    Amplitudes fall with frequency as in photographs (Field 1987), a little faster, so that a JPEG
    file of quality 92 has the size that one of a photograph has.
    """
    noise = np.random.default_rng(seed).standard_normal((4, ROWS, COLUMNS))
    frequency = np.hypot(np.fft.fftfreq(ROWS)[:, np.newaxis], np.fft.rfftfreq(COLUMNS))
    shaped = np.fft.rfft2(noise) / np.maximum(frequency, 1 / COLUMNS) ** SLOPE
    planes = np.fft.irfft2(shaped, s=(ROWS, COLUMNS))
    planes -= planes.mean(axis=(1, 2), keepdims=True)
    planes /= planes.std(axis=(1, 2), keepdims=True)
    picture = (planes[:1] + COLOUR * planes[1:]) / np.hypot(1, COLOUR)
    return np.clip(picture * DEVIATION + MEAN, 0, 255).astype(np.uint8).transpose(1, 2, 0)


def write_photographs(folder: Path, count: int, first_seed: int) -> list[Path]:
    """Write JPEG files of quality 92, unless they are there; their paths in order."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{first_seed + number:05}.jpg" for number in range(count)]
    for number, path in enumerate(paths):
        if not path.exists():
            file = io.BytesIO()
            Image.fromarray(photograph(first_seed + number)).save(file, "JPEG", quality=QUALITY)
            path.write_bytes(file.getvalue())
    return paths
