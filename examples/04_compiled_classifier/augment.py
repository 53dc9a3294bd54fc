"""Pictures changed at random: RandAugment and AugMix, on grey pictures of any size.

Both draw from the same changes, each with a strength of 0 to 1. RandAugment (Cubuk et al. 2019)
applies a few of them, all with one strength, one after another. AugMix (Hendrycks et al. 2019)
mixes a picture with several short chains of them, so that it stays close to what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageEnhance, ImageOps

Pictures = npt.NDArray[np.uint8]  # (count, height, width)
Change = Callable[[Image.Image, float, np.random.Generator], Image.Image]

MOST_DEGREES, MOST_SHEAR, MOST_SHIFT = 30.0, 0.3, 1 / 3
MOST_ENHANCEMENT = 0.9


def _sign(random: np.random.Generator) -> float:
    return -1.0 if random.random() < 0.5 else 1.0


def _moved(picture: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    """The picture seen through an affine map from its places to those of the original."""
    return picture.transform(
        picture.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR
    )


def rotate(picture: Image.Image, strength: float, random: np.random.Generator) -> Image.Image:
    degrees = _sign(random) * strength * MOST_DEGREES
    return picture.rotate(degrees, Image.Resampling.BILINEAR)


def shear(picture: Image.Image, strength: float, random: np.random.Generator) -> Image.Image:
    amount = _sign(random) * strength * MOST_SHEAR
    if random.random() < 0.5:
        return _moved(picture, (1, amount, -amount * picture.height / 2, 0, 1, 0))
    return _moved(picture, (1, 0, 0, amount, 1, -amount * picture.width / 2))


def shift(picture: Image.Image, strength: float, random: np.random.Generator) -> Image.Image:
    pixels = _sign(random) * strength * MOST_SHIFT * picture.width
    if random.random() < 0.5:
        return _moved(picture, (1, 0, pixels, 0, 1, 0))
    return _moved(picture, (1, 0, 0, 0, 1, pixels))


def posterize(picture: Image.Image, strength: float, random: np.random.Generator) -> Image.Image:
    return ImageOps.posterize(picture, 8 - round(4 * strength))


def solarize(picture: Image.Image, strength: float, random: np.random.Generator) -> Image.Image:
    return ImageOps.solarize(picture, 256 - round(256 * strength))


def equalize(picture: Image.Image, strength: float, random: np.random.Generator) -> Image.Image:
    return ImageOps.equalize(picture)


def autocontrast(picture: Image.Image, strength: float, random: np.random.Generator) -> Image.Image:
    return ImageOps.autocontrast(picture)


def _enhanced(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Change:
    def change(picture: Image.Image, strength: float, random: np.random.Generator) -> Image.Image:
        return kind(picture).enhance(1 + _sign(random) * strength * MOST_ENHANCEMENT)

    return change


# AugMix leaves out what the corruptions of its test do too: contrast, brightness and sharpness.
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
    "nothing": lambda picture, strength, random: picture,
}


def randaugment(
    pictures: Pictures, random: np.random.Generator, *, count: int = 2, strength: float = 0.3
) -> Pictures:
    """Apply `count` changes, drawn anew for each picture, all of one strength.

    Args:
        pictures: uint8 (batch, height, width); they stay as they are.
        random: the source of randomness.
        count: changes per picture, one after another.
        strength: of each, 0 to 1.
    """
    changes = list(CHANGES.values())
    result = np.empty_like(pictures)
    for index, pixels in enumerate(pictures):
        picture = Image.fromarray(pixels)
        for number in random.integers(len(changes), size=count):
            picture = changes[number](picture, strength, random)
        result[index] = np.asarray(picture)
    return result


def augmix(
    pictures: Pictures,
    random: np.random.Generator,
    *,
    width: int = 3,
    depth: int = 3,
    strength: float = 0.3,
    alpha: float = 1.0,
) -> Pictures:
    """Mix each picture with several chains of changes of it.

    Args:
        pictures: uint8 (batch, height, width); they stay as they are.
        random: the source of randomness.
        width: chains per picture.
        depth: changes per chain, at most; each chain has one to as many.
        strength: the greatest of a change, 0 to 1; each draws its own.
        alpha: of the Dirichlet distribution that weighs the chains, and of the beta distribution
            that weighs them all against the picture itself.
    """
    changes = list(MIXED.values())
    result = np.empty_like(pictures)
    for index, pixels in enumerate(pictures):
        weights = random.dirichlet([alpha] * width)
        mixture = np.zeros(pixels.shape)
        for weight in weights:
            picture = Image.fromarray(pixels)
            for number in random.integers(len(changes), size=random.integers(1, depth + 1)):
                picture = changes[number](picture, random.uniform(0.1, strength), random)
            mixture += weight * np.asarray(picture)
        own = random.beta(alpha, alpha)
        result[index] = np.rint(own * pixels + (1 - own) * mixture)
    return result
