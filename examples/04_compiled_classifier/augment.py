"""RandAugment and AugMix: random changes of grey images of any size.

Both draw from the same changes, each with a strength of 0 to 1. RandAugment (Cubuk et al. 2019)
applies a few changes of equal strength, one after another. AugMix (Hendrycks et al. 2019) mixes an
image with several short chains of changes, so that the result stays close to the image.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageEnhance, ImageOps

Images = npt.NDArray[np.uint8]  # (count, height, width)
Change = Callable[[Image.Image, float, np.random.Generator], Image.Image]

MOST_DEGREES, MOST_SHEAR, MOST_SHIFT = 30.0, 0.3, 1 / 3
MOST_ENHANCEMENT = 0.9


def _sign(random: np.random.Generator) -> float:
    return -1.0 if random.random() < 0.5 else 1.0


def _moved(image: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    """Return the image under an affine map from its coordinates to those of the original."""
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


def rotate(image: Image.Image, strength: float, random: np.random.Generator) -> Image.Image:
    degrees = _sign(random) * strength * MOST_DEGREES
    return image.rotate(degrees, Image.Resampling.BILINEAR)


def shear(image: Image.Image, strength: float, random: np.random.Generator) -> Image.Image:
    amount = _sign(random) * strength * MOST_SHEAR
    if random.random() < 0.5:
        return _moved(image, (1, amount, -amount * image.height / 2, 0, 1, 0))
    return _moved(image, (1, 0, 0, amount, 1, -amount * image.width / 2))


def shift(image: Image.Image, strength: float, random: np.random.Generator) -> Image.Image:
    pixels = _sign(random) * strength * MOST_SHIFT * image.width
    if random.random() < 0.5:
        return _moved(image, (1, 0, pixels, 0, 1, 0))
    return _moved(image, (1, 0, 0, 0, 1, pixels))


def posterize(image: Image.Image, strength: float, random: np.random.Generator) -> Image.Image:
    return ImageOps.posterize(image, 8 - round(4 * strength))


def solarize(image: Image.Image, strength: float, random: np.random.Generator) -> Image.Image:
    return ImageOps.solarize(image, 256 - round(256 * strength))


def equalize(image: Image.Image, strength: float, random: np.random.Generator) -> Image.Image:
    return ImageOps.equalize(image)


def autocontrast(image: Image.Image, strength: float, random: np.random.Generator) -> Image.Image:
    return ImageOps.autocontrast(image)


def _enhanced(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Change:
    def change(image: Image.Image, strength: float, random: np.random.Generator) -> Image.Image:
        return kind(image).enhance(1 + _sign(random) * strength * MOST_ENHANCEMENT)

    return change


# AugMix excludes changes that are also corruptions of its test: contrast, brightness, sharpness.
MIXED: Mapping[str, Change] = {
    "rotate": rotate,
    "shear": shear,
    "shift": shift,
    "posterize": posterize,
    "solarize": solarize,
    "equalize": equalize,
    "autocontrast": autocontrast,
}
CHANGES: Mapping[str, Change] = {
    **MIXED,
    "contrast": _enhanced(ImageEnhance.Contrast),
    "brightness": _enhanced(ImageEnhance.Brightness),
    "sharpness": _enhanced(ImageEnhance.Sharpness),
    "nothing": lambda image, strength, random: image,
}


def randaugment(
    images: Images, random: np.random.Generator, *, count: int = 2, strength: float = 0.3
) -> Images:
    """Apply `count` random changes of equal strength to each image.

    Args:
        images: Images, uint8 (batch, height, width); they are not changed.
        random: Source of randomness.
        count: Changes per image, one after another (default 2).
        strength: Strength of each change, 0 to 1 (default 0.3).
    """
    changes = list(CHANGES.values())
    result = np.empty_like(images)
    for index, pixels in enumerate(images):
        image = Image.fromarray(pixels)
        for number in random.integers(len(changes), size=count):
            image = changes[number](image, strength, random)
        result[index] = np.asarray(image)
    return result


def augmix(
    images: Images,
    random: np.random.Generator,
    *,
    width: int = 3,
    depth: int = 3,
    strength: float = 0.3,
    alpha: float = 1.0,
) -> Images:
    """Mix each image with several changed versions of it.

    Args:
        images: Images, uint8 (batch, height, width); they are not changed.
        random: Source of randomness.
        width: Chains of changes per image (default 3).
        depth: Largest number of changes in a chain; the smallest is one (default 3).
        strength: Highest strength of a change, 0 to 1; each change draws its own (default 0.3).
        alpha: Parameter of the Dirichlet distribution of the chains' weights, and of the beta
            distribution of the unchanged image's weight (default 1).
    """
    changes = list(MIXED.values())
    result = np.empty_like(images)
    for index, pixels in enumerate(images):
        weights = random.dirichlet([alpha] * width)
        mixture = np.zeros(pixels.shape)
        for weight in weights:
            image = Image.fromarray(pixels)
            for number in random.integers(len(changes), size=random.integers(1, depth + 1)):
                image = changes[number](image, random.uniform(0.1, strength), random)
            mixture += weight * np.asarray(image)
        share = random.beta(alpha, alpha)
        result[index] = np.rint(share * pixels + (1 - share) * mixture)
    return result
