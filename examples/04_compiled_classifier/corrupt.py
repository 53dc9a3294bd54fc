"""Test pictures as bad cameras and lines give them, after Hendrycks & Dietterich (2019).

They show how a classifier bears what it was not trained for: AugMix has none of them, RandAugment
changes contrast and brightness in its own way.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

Pictures = npt.NDArray[np.uint8]  # (count, height, width)
Numbers = npt.NDArray[np.float64]


def _bytes(numbers: Numbers) -> Pictures:
    return np.clip(np.rint(numbers), 0, 255).astype(np.uint8)


def _noise(pictures: Pictures) -> Pictures:
    random = np.random.default_rng(1)
    return _bytes(pictures + random.normal(0, 30, pictures.shape))


def _impulses(pictures: Pictures) -> Pictures:
    random = np.random.default_rng(2)
    drawn = random.random(pictures.shape)
    return np.where(drawn < 0.04, 0, np.where(drawn > 0.96, 255, pictures)).astype(np.uint8)


def _blur(pictures: Pictures) -> Pictures:
    return _each(pictures, lambda picture: picture.filter(ImageFilter.GaussianBlur(1.2)))


def _motion(pictures: Pictures) -> Pictures:
    """The mean of five places along a line."""
    moved = [np.roll(pictures, (step, step), (1, 2)).astype(float) for step in range(-2, 3)]
    return _bytes(np.mean(moved, axis=0))


def _contrast(pictures: Pictures) -> Pictures:
    mean = pictures.mean(axis=(1, 2), keepdims=True)
    return _bytes(mean + 0.4 * (pictures - mean))


def _brightness(pictures: Pictures) -> Pictures:
    return _bytes(pictures.astype(float) + 70)


def _pixels(pictures: Pictures) -> Pictures:
    def coarse(picture: Image.Image) -> Image.Image:
        small = picture.resize((picture.width // 2, picture.height // 2), Image.Resampling.BOX)
        return small.resize(picture.size, Image.Resampling.NEAREST)

    return _each(pictures, coarse)


def _jpeg(pictures: Pictures) -> Pictures:
    def packed(picture: Image.Image) -> Image.Image:
        stream = io.BytesIO()
        picture.save(stream, "JPEG", quality=15)
        return Image.open(stream)

    return _each(pictures, packed)


def _each(pictures: Pictures, change: Callable[[Image.Image], Image.Image]) -> Pictures:
    return np.stack([np.asarray(change(Image.fromarray(pixels))) for pixels in pictures])


CORRUPTIONS: Mapping[str, Callable[[Pictures], Pictures]] = {
    "noise": _noise,
    "impulses": _impulses,
    "blur": _blur,
    "motion": _motion,
    "contrast": _contrast,
    "brightness": _brightness,
    "pixels": _pixels,
    "jpeg": _jpeg,
}
