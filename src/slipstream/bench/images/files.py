"""JPEG files for benchmarks: noise that has the colours and the detail of photographs."""

# NumPy's type stubs leave result types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROWS, COLUMNS = 375, 500  # the most frequent size in ImageNet
QUALITY = 92
SLOPE = 1.5  # exponent with which amplitudes fall with frequency; it gives files of about 57 kB
MEAN, DEVIATION = 118.0, 52.0  # mean and standard deviation of pixels
COLOUR = 0.35  # amplitude of the noise of each channel, relative to the noise of all channels


def photograph(seed: int) -> NDArray[np.uint8]:
    """Return the pixels of a synthetic image, uint8 [375, 500, 3].

    Each seed gives a different image. Amplitudes fall with spatial frequency as in photographs
    (Field 1987), but a little faster. Therefore a JPEG file of quality 92 is as large as the JPEG
    file of a photograph.
    """
    noise = np.random.default_rng(seed).standard_normal((4, ROWS, COLUMNS))
    frequency = np.hypot(np.fft.fftfreq(ROWS)[:, np.newaxis], np.fft.rfftfreq(COLUMNS))
    shaped = np.fft.rfft2(noise) / np.maximum(frequency, 1 / COLUMNS) ** SLOPE
    planes = np.fft.irfft2(shaped, s=(ROWS, COLUMNS))
    planes -= planes.mean(axis=(1, 2), keepdims=True)
    planes /= planes.std(axis=(1, 2), keepdims=True)
    image = (planes[:1] + COLOUR * planes[1:]) / np.hypot(1, COLOUR)
    return np.clip(image * DEVIATION + MEAN, 0, 255).astype(np.uint8).transpose(1, 2, 0)


def write_photographs(folder: Path, count: int, first_seed: int) -> list[Path]:
    """Write the JPEG files of quality 92 that do not exist yet; return the paths of all files."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{first_seed + number:05}.jpg" for number in range(count)]
    for number, path in enumerate(paths):
        if not path.exists():
            file = io.BytesIO()
            Image.fromarray(photograph(first_seed + number)).save(file, "JPEG", quality=QUALITY)
            path.write_bytes(file.getvalue())
    return paths
