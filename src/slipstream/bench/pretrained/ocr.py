"""PP-OCRv4 of rapidocr-onnxruntime: three models that find, orient and read lines of text.

The three models are PaddleOCR's mobile models. The inputs of each model are images with numbers
from -1 to 1. Images of lines are 48 pixels high and padded on the right. The detector was trained
to mark areas smaller than the text, so its boxes must be enlarged.
"""

# The type stubs of NumPy, Pillow and OpenCV leave some types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from PIL import Image

from slipstream.bench.pretrained.case import Array, Pretrained, Run, Sample, Task
from slipstream.bench.pretrained.packages import package_file
from slipstream.bench.pretrained.writing import Poster, TextPiece, page_pieces, pieces, posters

PACKAGE, LICENCE = "rapidocr-onnxruntime", "Apache-2.0"
LINE = (48, 320)  # height and width in pixels of a line to read
UPRIGHT = (48, 192)  # height and width in pixels of a line whose orientation is classified
SIDE = 320  # height and width in pixels of an image in which text is searched
LEAST = 0.3  # smallest probability of text at which a pixel counts as text
GROWTH = 1.6  # enlargement of a box on each side: its area divided by its perimeter, times GROWTH
OVERLAP = 0.5  # smallest intersection over union at which a found box counts as right


def _numbers(image: Image.Image) -> Array:
    """Return an image as float32 (3, height, width) from -1 to 1, with channels ordered BGR."""
    pixels = np.asarray(image.convert("RGB"), np.float32)[:, :, ::-1]
    return np.ascontiguousarray((pixels / 127.5 - 1).transpose(2, 0, 1))


def _line(image: Image.Image, size: tuple[int, int]) -> Array:
    """Return a line of text as model input: float32 (1, 3, height, width)."""
    height, width = size
    scaled = min(max(round(height * image.width / image.height), 1), width)
    result = np.zeros((1, 3, height, width), np.float32)
    result[0, :, :, :scaled] = _numbers(image.resize((scaled, height)))
    return result


# ---- reading -----------------------------------------------------------------------------------


@cache
def _characters() -> list[str]:
    """Return the characters by class; class 0 is the empty string, and the last class a space."""
    import onnx

    model = onnx.load(str(_recogniser()), load_external_data=False)
    characters = {item.key: item.value for item in model.metadata_props}["character"]
    return ["", *characters.splitlines(), " "]


def text_of(probabilities: Array, characters: Sequence[str]) -> str:
    """Return the text of the most likely class at each position, with repetitions merged.

    Args:
        probabilities: Array (1, positions, classes), in which class 0 means no character.
        characters: Characters by class.
    """
    best = probabilities[0].argmax(axis=1)
    is_new = (best != 0) & np.append(True, best[1:] != best[:-1])
    return "".join(characters[int(number)] for number in best[is_new])


def _recogniser() -> str:
    return str(package_file("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx"))


def _reading(is_short: bool) -> Task:
    held_out = [*page_pieces(), *pieces(2, 100 if is_short else 300)]

    def judge(run: Run) -> float:
        right = [_read(run, piece) == piece.text.replace(" ", "") for piece in held_out]
        return sum(right) / len(right)

    samples: list[Sample] = [
        {"x": _line(piece.image, LINE)} for piece in pieces(1, 32 if is_short else 128)
    ]
    return Task(samples, judge)


def _read(run: Run, piece: TextPiece) -> str:
    """Return the text that the model reads in an image; blanks are removed.

    The model was trained on Chinese and often misses blanks.
    """
    (probabilities,) = run({"x": _line(piece.image, LINE)}).values()
    return text_of(probabilities, _characters()).replace(" ", "")


# ---- upright or upside down --------------------------------------------------------------------


def _turned(seed: int, count: int) -> list[tuple[dict[str, Array], int]]:
    """Return lines of text, upright (class 0) and upside down (class 1)."""
    samples: list[tuple[dict[str, Array], int]] = []
    for piece in pieces(seed, count):
        for label, image in enumerate((piece.image, piece.image.rotate(180))):
            samples.append(({"x": _line(image, UPRIGHT)}, label))
    return samples


def _uprightness(is_short: bool) -> Task:
    held_out = _turned(4, 50 if is_short else 300)

    def judge(run: Run) -> float:
        right = [next(iter(run(inputs).values())).argmax() == label for inputs, label in held_out]
        return float(np.mean(right))

    return Task(list(_turned(3, 32 if is_short else 160)), judge)


# ---- finding -----------------------------------------------------------------------------------


def boxes_of(probabilities: Array) -> Array:
    """Return boxes around text in pixels: an array with columns left, top, right and bottom.

    Args:
        probabilities: Probability that each pixel is text, an array (1, 1, height, width).
    """
    import cv2

    mask = (probabilities[0, 0] > LEAST).astype(np.uint8)
    count, _, places, _ = cv2.connectedComponentsWithStats(mask)
    boxes: list[tuple[float, float, float, float]] = []
    for left, top, width, height, area in places[1:count].tolist():
        if min(width, height) < 3:
            continue
        more = GROWTH * area / (2 * (width + height))
        boxes.append((left - more, top - more, left + width + more, top + height + more))
    return np.array(boxes).reshape(-1, 4)


def _agreement(found: Array, right: Array) -> tuple[int, int, int]:
    """Return three counts: of right boxes that were found, of found boxes, and of right boxes."""
    agree = 0
    for left, top, lower_right, lower in right.tolist():
        box = np.array([left, top, lower_right, lower])
        both = np.minimum(found[:, 2:], box[2:]) - np.maximum(found[:, :2], box[:2])
        common = np.clip(both, 0, None).prod(axis=1)
        areas = (found[:, 2:] - found[:, :2]).prod(axis=1)
        union = areas + (box[2:] - box[:2]).prod() - common
        agree += bool((common / union >= OVERLAP).any())
    return agree, len(found), len(right)


def _inputs(poster: Poster) -> dict[str, Array]:
    return {"x": _numbers(poster.image)[np.newaxis]}


def _finding(is_short: bool) -> Task:
    held_out = posters(6, 12 if is_short else 80, SIDE)

    def judge(run: Run) -> float:
        """Return the F1 score of the boxes: the harmonic mean of recall and precision."""
        sums = np.zeros(3)
        for poster in held_out:
            (probabilities,) = run(_inputs(poster)).values()
            sums += _agreement(boxes_of(probabilities), poster.boxes)
        return float(2 * sums[0] / (sums[1] + sums[2]))

    samples: list[Sample] = [_inputs(poster) for poster in posters(5, 16 if is_short else 64, SIDE)]
    return Task(samples, judge)


OCR = (
    Pretrained(
        name="ocr-text",
        title="PP-OCRv4, reading",
        package=PACKAGE,
        licence=LICENCE,
        measure="pieces of text read without a mistake",
        model=lambda: package_file("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx"),
        task=_reading,
        shapes={"x": (1, 3, *LINE)},
        snr_db=35.0,  # one wrong letter makes a piece wrong; at 30 dB, one piece in twenty is
    ),
    Pretrained(
        name="ocr-boxes",
        title="PP-OCRv4, finding text",
        package=PACKAGE,
        licence=LICENCE,
        measure="lines of text found (F1 at an overlap of one half)",
        model=lambda: package_file("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx"),
        task=_finding,
        shapes={"x": (1, 3, SIDE, SIDE)},
    ),
    Pretrained(
        name="ocr-upright",
        title="PP-OCR, upright or upside down",
        package=PACKAGE,
        licence=LICENCE,
        measure="lines classified as upright or upside down",
        model=lambda: package_file(
            "rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx"
        ),
        task=_uprightness,
        shapes={"x": (1, 3, *UPRIGHT)},
    ),
)
