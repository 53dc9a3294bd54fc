"""Corruptions of test images, as from bad cameras and lines, after Hendrycks & Dietterich (2019).

They measure the accuracy of a classifier on changes that it was not trained on. AugMix uses none of
them; RandAugment changes contrast and brightness in its own way.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

Images = npt.NDArray[np.uint8]  # (count, height, width)
Numbers = npt.NDArray[np.float64]


def _bytes(numbers: Numbers) -> Images:
    return np.clip(np.rint(numbers), 0, 255).astype(np.uint8)


def _noise(images: Images) -> Images:
    random = np.random.default_rng(1)
    return _bytes(images + random.normal(0, 30, images.shape))


def _impulses(images: Images) -> Images:
    random = np.random.default_rng(2)
    drawn = random.random(images.shape)
    return np.where(drawn < 0.04, 0, np.where(drawn > 0.96, 255, images)).astype(np.uint8)


def _blur(images: Images) -> Images:
    return _each(images, lambda image: image.filter(ImageFilter.GaussianBlur(1.2)))


def _motion(images: Images) -> Images:
    """Return the mean of five positions along a line."""
    moved = [np.roll(images, (step, step), (1, 2)).astype(float) for step in range(-2, 3)]
    return _bytes(np.mean(moved, axis=0))


def _contrast(images: Images) -> Images:
    mean = images.mean(axis=(1, 2), keepdims=True)
    return _bytes(mean + 0.4 * (images - mean))


def _brightness(images: Images) -> Images:
    return _bytes(images.astype(float) + 70)


def _pixels(images: Images) -> Images:
    def coarse(image: Image.Image) -> Image.Image:
        small = image.resize((image.width // 2, image.height // 2), Image.Resampling.BOX)
        return small.resize(image.size, Image.Resampling.NEAREST)

    return _each(images, coarse)


def _jpeg(images: Images) -> Images:
    def packed(image: Image.Image) -> Image.Image:
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=15)
        return Image.open(stream)

    return _each(images, packed)


def _each(images: Images, change: Callable[[Image.Image], Image.Image]) -> Images:
    return np.stack([np.asarray(change(Image.fromarray(pixels))) for pixels in images])


CORRUPTIONS: Mapping[str, Callable[[Images], Images]] = {
    "noise": _noise,
    "impulses": _impulses,
    "blur": _blur,
    "motion": _motion,
    "contrast": _contrast,
    "brightness": _brightness,
    "pixels": _pixels,
    "jpeg": _jpeg,
}
