"""Compilation of the network that the tour trained, for images given as bytes."""

# PyTorch's type stubs leave some types unspecified.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from slipstream import infer
from slipstream.tour import example

NUM_SAMPLES = 2000  # number of test images that the compiler uses
BUDGET = 0.3  # largest allowed loss of accuracy, in percentage points


def compile_checkpoint(
    checkpoint: Path, package: Path, *, seconds: float, tell: Callable[[str, float], None]
) -> infer.Report:
    """Compile the trained network; test images are used for calibration and to measure accuracy.

    Args:
        checkpoint: Path of the checkpoint file that the training wrote.
        package: Path of the package to write; its input is an image, uint8 (1, 28, 28, 1).
        seconds: Time limit of the search in seconds.
        tell: Function that receives the name of the current activity and the share of the time
            limit that has passed.
    """
    network = example.module("model").small_resnet()
    network.load_state_dict(torch.load(checkpoint, weights_only=True)["model"])
    data = example.module("data")
    return infer.compile(
        network.eval(),
        package,
        infer.CompileOptions(
            example_inputs=torch.zeros(1, *example.SHAPE),
            data=_samples(data),
            pixels=True,
            images=infer.ImageOptions(size=example.SIDE, mean=(data.MEAN,), std=(data.DEVIATION,)),
            budget=BUDGET,
            seconds=seconds,
            threads=example.THREADS,
        ),
        tell,
    )


def _samples(data: Any) -> Iterator[tuple[np.ndarray[Any, np.dtype[np.uint8]], int]]:
    images, labels = data.load("t10k", NUM_SAMPLES)
    for image, label in zip(images.numpy(), labels.tolist(), strict=True):
        yield image.transpose(1, 2, 0), label
