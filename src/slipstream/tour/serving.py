"""Serving of the compiled model with `slipstream serve`, and classification of images over REST."""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from slipstream.bench.serve.measure import started
from slipstream.errors import SlipstreamError
from slipstream.tour import example

MODEL = "fashion"
NUM_ASKED = 500  # number of images, the last of the test set, which the compiler did not use

_TIMEOUT_SECONDS = 30.0

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Answers of the server to the sent images.

    Args:
        pixels: First image that was sent, uint8 (28, 28).
        label: Name of the right class of the first image.
        likeliest: Three most likely classes of the first image, with their probabilities.
        asked: Number of images that were sent.
        right: Number of images that were classified correctly.
        middle_ms: Median time from a request to its answer, in milliseconds.
    """

    pixels: Pixels
    label: str
    likeliest: tuple[tuple[str, float], ...]
    asked: int
    right: int
    middle_ms: float


@contextmanager
def served(package: Path) -> Generator[str]:
    """Serve the package on a free port; yield the server's address, and end the server afterwards.

    Args:
        package: Path of the compiled model's file.

    Raises:
        SlipstreamError: the server ended before it answered.
    """
    command = [sys.executable, "-m", "slipstream.cli", "serve", f"{MODEL}={package}"]
    with started("the server", [*command, "--port", "0", "--grpc-port", "-1"]) as server:
        yield server.url


def ask(url: str) -> Answered:
    """Classify test images one after another over the Open Inference Protocol.

    Args:
        url: Address of the server.

    Raises:
        SlipstreamError: an answer has a status other than 200.
    """
    images, labels = example.module("data").load("t10k")
    pixels: Pixels = images[-NUM_ASKED:, 0].numpy()
    expected: list[int] = labels[-NUM_ASKED:].tolist()
    connection = HTTPConnection(urlsplit(url).netloc, timeout=_TIMEOUT_SECONDS)
    metadata = _answer(connection, "GET", f"/v2/models/{MODEL}")
    answers: list[Sequence[float]] = []
    seconds: list[float] = []
    for image in pixels:
        begin = time.perf_counter()
        answers.append(_logits(connection, metadata["inputs"][0], image))
        seconds.append(time.perf_counter() - begin)
    connection.close()
    pairs = zip(answers, expected, strict=True)
    return Answered(
        pixels=pixels[0],
        label=example.CLASSES[expected[0]],
        likeliest=_likeliest(answers[0]),
        asked=len(expected),
        right=sum(int(np.argmax(logits)) == label for logits, label in pairs),
        middle_ms=1e3 * statistics.median(seconds),
    )


def _logits(connection: HTTPConnection, metadata: dict[str, Any], image: Pixels) -> list[float]:
    shape = [1, *image.shape, 1]
    tensor = {**metadata, "shape": shape, "data": image.ravel().tolist()}
    body = json.dumps({"inputs": [tensor]})
    return _answer(connection, "POST", f"/v2/models/{MODEL}/infer", body)["outputs"][0]["data"]


def _answer(connection: HTTPConnection, method: str, path: str, body: str | None = None) -> Any:
    connection.request(method, path, body)
    response = connection.getresponse()
    content = response.read()
    if response.status != 200:
        raise SlipstreamError(f"{method} {path}: status {response.status}: {content.decode()}")
    return json.loads(content)


def _likeliest(logits: Sequence[float], most: int = 3) -> tuple[tuple[str, float], ...]:
    greatest = max(logits)
    weights = [math.exp(logit - greatest) for logit in logits]
    order = sorted(range(len(weights)), key=lambda label: -weights[label])[:most]
    return tuple((example.CLASSES[label], weights[label] / sum(weights)) for label in order)
