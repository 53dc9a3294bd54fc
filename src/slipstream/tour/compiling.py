"""The checkpoint of the demo's training, compiled to take pictures as bytes."""

# PyTorch's stubs leave some of its types open.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from slipstream import infer
from slipstream.tour import example

NUM_SAMPLES = 2000
BUDGET = 0.3  # percentage points of right answers that may be lost


def compile_checkpoint(
    checkpoint: Path, package: Path, *, seconds: float, tell: Callable[[str, float], None]
) -> infer.Report:
    """Compiles the trained network, calibrated and judged by test pictures.

    Args:
        checkpoint: file that the training wrote.
        package: file to write, whose input is uint8 (1, 28, 28, 1).
        seconds: to search for.
        tell: called with what is being done, and the share of the time that has passed.
    """
    network = example.module("model").small_resnet()
    network.load_state_dict(torch.load(checkpoint, weights_only=True)["model"])
    data = example.module("data")
    return infer.compile(
        network.eval(),
        package,
        example_inputs=torch.zeros(1, *example.SHAPE),
        data=_samples(data),
        pixels=True,
        pictures=infer.PictureOptions(size=example.SIDE, mean=(data.MEAN,), std=(data.DEVIATION,)),
        budget=BUDGET,
        seconds=seconds,
        threads=example.THREADS,
        tell=tell,
    )


def _samples(data: Any) -> Iterator[tuple[np.ndarray[Any, np.dtype[np.uint8]], int]]:
    images, labels = data.load("t10k", NUM_SAMPLES)
    for image, label in zip(images.numpy(), labels.tolist(), strict=True):
        yield image.transpose(1, 2, 0), label
