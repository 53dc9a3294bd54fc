"""Images of text: rendered pieces of Python's manual, and words of a photographed page."""

# Pillow's type annotations are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pydoc_data.topics import topics

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from slipstream.bench.pretrained.case import Array
from slipstream.bench.pretrained.packages import package_file

PHOTOGRAPHS = ("coffee.png", "chelsea.png", "astronaut.png", "rocket.jpg", "ihc.png")
LONGEST = 22  # highest number of characters in a piece of text


@dataclass(frozen=True)
class TextPiece:
    """A few words, and an RGB image of them."""

    text: str
    image: Image.Image


def paragraphs() -> list[list[str]]:
    """Return the words of each topic of Python's manual (from pydoc), in a fixed order."""
    return [topics[name].split() for name in sorted(topics)]


def phrases(seed: int) -> Iterator[str]:
    """Yield endlessly many random pieces of Python's manual, each up to 22 characters long."""
    random = np.random.default_rng(seed)
    topics_words = paragraphs()
    while True:
        words = topics_words[random.integers(len(topics_words))]
        first = int(random.integers(len(words)))
        text = words[first]
        for word in words[first + 1 : first + 1 + int(random.integers(4))]:
            if len(text) + len(word) < LONGEST:
                text += f" {word}"
        if text.isascii() and text.isprintable() and 3 <= len(text) <= LONGEST:
            yield text


def pieces(seed: int, count: int) -> list[TextPiece]:
    """Return images of text as a camera or a scanner might produce them.

    The text is on plain paper or on a photograph, slightly rotated, blurred, noisy and compressed.
    """
    random = np.random.default_rng(seed)
    return [_piece(text, random) for text in itertools.islice(phrases(seed), count)]


def page_pieces() -> list[TextPiece]:
    """Return the words of a photographed page that is part of scikit-image."""
    page = Image.open(package_file("skimage", "data/page.png")).convert("RGB")
    return [TextPiece(text, page.crop(box)) for text, box in PAGE]


@dataclass(frozen=True)
class Poster:
    """An RGB photograph with lines of text, and the lines' boxes: left, top, right, bottom."""

    image: Image.Image
    boxes: Array


def posters(seed: int, count: int, side: int) -> list[Poster]:
    """Return square photographs, each with up to five lines of text drawn on it."""
    random = np.random.default_rng(seed)
    texts = phrases(seed)
    return [_poster(texts, random, side) for _ in range(count)]


def photograph(random: np.random.Generator, width: int, height: int) -> Image.Image:
    """Return a random part of one of the photographs that scikit-image contains."""
    name = PHOTOGRAPHS[random.integers(len(PHOTOGRAPHS))]
    image = Image.open(package_file("skimage", f"data/{name}")).convert("RGB")
    left = int(random.integers(max(image.width - width, 1)))
    top = int(random.integers(max(image.height - height, 1)))
    return image.crop((left, top, left + width, top + height))


def _poster(texts: Iterator[str], random: np.random.Generator, side: int) -> Poster:
    image = photograph(random, side, side)
    draw = ImageDraw.Draw(image)
    boxes: list[tuple[int, int, int, int]] = []
    top = int(random.integers(8, 24))
    while len(boxes) < 5 and top < side - 40:
        font = ImageFont.load_default(int(random.integers(15, 30)))
        text = next(texts)
        left, upper, right, lower = draw.textbbox((0, 0), text, font=font)
        width, height = int(right - left), int(lower - upper)
        if width > side - 16:
            continue
        at = int(random.integers(8, side - 8 - width + 1))
        paper = at - 5, top - 4, at + width + 5, top + height + 4
        draw.rectangle(paper, fill=_colour(random, 200))
        draw.text((at - left, top - upper), text, fill=_colour(random, 0), font=font)
        boxes.append((at, top, at + width, top + height))
        top += height + int(random.integers(24, 60))
    return Poster(image, np.array(boxes))


def _piece(text: str, random: np.random.Generator) -> TextPiece:
    font = ImageFont.load_default(int(random.integers(18, 40)))
    left, top, right, bottom = (int(edge) for edge in font.getbbox(text))
    margin = int(random.integers(2, 6))
    size = right - left + 2 * margin, bottom - top + 2 * margin
    paper = Image.new("RGB", size, _colour(random, 200))
    if random.random() < 0.3:
        paper = Image.blend(photograph(random, *size).resize(size), paper, 0.75)
    ImageDraw.Draw(paper).text(
        (margin - left, margin - top), text, fill=_colour(random, 0), font=font
    )
    turned = paper.rotate(random.uniform(-2, 2), Image.Resampling.BILINEAR, fillcolor=_mean(paper))
    return TextPiece(text, _worn(turned, random))


def _worn(image: Image.Image, random: np.random.Generator) -> Image.Image:
    image = image.filter(ImageFilter.GaussianBlur(random.uniform(0, 1)))
    noisy = np.asarray(image) + random.normal(0, random.uniform(0, 14), (*image.size[::-1], 1))
    stream = io.BytesIO()
    pixels = np.clip(noisy, 0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(stream, "JPEG", quality=int(random.integers(25, 95)))
    return Image.open(stream)


def _colour(random: np.random.Generator, least: int) -> tuple[int, int, int]:
    red, green, blue = (int(value) for value in random.integers(least, least + 56, 3))
    return red, green, blue


def _mean(image: Image.Image) -> tuple[int, int, int]:
    red, green, blue = (int(value) for value in np.asarray(image).mean(axis=(0, 1)))
    return red, green, blue


# The words of skimage/data/page.png with their boxes: left, top, right, bottom.
PAGE: tuple[tuple[str, tuple[int, int, int, int]], ...] = (
    ("Region-based", (4, 10, 145, 35)),
    ("segmentation", (149, 10, 295, 37)),
    ("Let", (3, 46, 26, 63)),
    ("us", (30, 48, 50, 65)),
    ("first", (53, 47, 84, 65)),
    ("determine", (88, 48, 160, 65)),
    ("markers", (165, 48, 224, 66)),
    ("coins", (281, 49, 319, 66)),
    ("and", (322, 48, 351, 66)),
    ("the", (354, 47, 379, 64)),
    ("background.", (4, 64, 85, 83)),
    ("These", (87, 65, 129, 83)),
    ("markers", (132, 66, 190, 84)),
    ("pixels", (218, 67, 262, 86)),
    ("that", (262, 67, 294, 84)),
    ("can", (318, 68, 344, 83)),
    ("label", (346, 64, 379, 82)),
    ("unambiguously", (4, 82, 104, 102)),
    ("either", (132, 84, 175, 102)),
    ("object", (179, 84, 225, 105)),
    ("background.", (252, 83, 338, 105)),
    ("Here,", (342, 83, 379, 101)),
    ("markers", (29, 99, 85, 118)),
    ("found", (114, 101, 155, 119)),
    ("extreme", (237, 104, 297, 121)),
    ("parts", (300, 102, 336, 122)),
    ("histogram", (4, 113, 69, 135)),
    ("grey", (88, 121, 120, 139)),
    ("values:", (122, 120, 172, 138)),
    ("np.zeros_like(coins)", (103, 173, 243, 191)),
)
