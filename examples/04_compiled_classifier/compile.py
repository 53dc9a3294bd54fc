"""Compile the classifier that train.py trained, and classify the test set's JPEG files with it.

    python examples/04_compiled_classifier/compile.py classifier/classifier.pt -o classifier.slip

Test images calibrate the model and judge its accuracy, and some are held out to the end. At most
`--budget` percentage points of accuracy may be lost. The compiled model reads JPEG files. The time
that is printed at the end runs from the bytes of a file to the answer.
"""

from __future__ import annotations

import argparse
import io
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from network import resnet26d
from PIL import Image
from rich.console import Console
from torch import nn

from slipstream import infer
from slipstream.bench.infer.fashion_mnist import write_images
from slipstream.infer.package.report import candidates_table, summary

sys.path.append(str(Path(__file__).resolve().parents[1] / "01_fashion_mnist"))
from data import DEVIATION, MEAN, load, normalise  # of the first example

PIXELS = infer.ImageOptions(size=28, mean=(MEAN,), std=(DEVIATION,))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="classifier.pt of train.py")
    parser.add_argument("-o", "--output", type=Path, default=Path("classifier.slip"))
    parser.add_argument("--images", type=Path, default=Path("classifier-jpeg"))
    parser.add_argument(
        "--budget", type=float, default=0.3, help="points of top-1 accuracy that may be lost"
    )
    parser.add_argument(
        "--time", type=float, default=60.0, help="time limit of the search in seconds"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=int, help="number of test images to use")
    return parser.parse_args()


def trained(path: Path) -> nn.Module:
    """Return the network with the weights of a checkpoint."""
    network = resnet26d()
    network.load_state_dict(torch.load(path, weights_only=True))
    return network.eval()


def samples(limit: int | None) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the images of the test set as bytes (28, 28, 1), with their labels."""
    images, labels = load("t10k", limit)
    for image, label in zip(images.numpy(), labels.tolist(), strict=True):
        yield image.transpose(1, 2, 0), label


def compiled(network: nn.Module, arguments: argparse.Namespace) -> infer.Report:
    """Compile the network for images in bytes, which the model normalises."""
    return infer.compile(
        network,
        arguments.output,
        infer.CompileOptions(
            example_inputs=torch.zeros(1, 1, 28, 28),
            data=samples(arguments.limit),
            pixels=True,
            images=PIXELS,
            budget=arguments.budget,
            seconds=arguments.time,
            threads=arguments.threads,
        ),
    )


def files(folder: Path, limit: int | None) -> list[tuple[Path, int]]:
    """Return the JPEG files of the test set, in a folder per label; write missing ones first."""
    folder = folder / ("all" if limit is None else str(limit))
    if not folder.exists():
        images, labels = load("t10k", limit)
        write_images(folder, images[:, 0].numpy(), labels.numpy())
    return [(path, int(path.parent.name)) for path in sorted(folder.glob("*/*.jpg"))]


def classified(images: list[tuple[Path, int]], answer: Callable[[bytes], Any]) -> str:
    """Return the accuracy, and the time of an answer from a file's bytes to its scores."""
    right, seconds = 0, []
    for path, label in images:
        content = path.read_bytes()
        begin = time.perf_counter()
        scores = answer(content)
        seconds.append(time.perf_counter() - begin)
        right += int(np.argmax(scores)) == label
    share, middle = right / len(images), 1e3 * statistics.median(seconds)
    return f"{share:.2%} right, {middle:.3f} ms from JPEG to answer (median of {len(images)})"


def by_hand(network: nn.Module) -> Callable[[bytes], Any]:
    """Return the usual code without a compiled model: Pillow and PyTorch."""

    @torch.inference_mode()
    def answer(content: bytes) -> Any:
        pixels = torch.from_numpy(np.array(Image.open(io.BytesIO(content))))
        return network(normalise(pixels[None, None])).numpy()

    return answer


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    network, console = trained(arguments.checkpoint), Console()
    report = compiled(network, arguments)
    console.print(candidates_table(report))
    console.print(summary(report))
    images = files(arguments.images, arguments.limit)
    print(f"PyTorch:    {classified(images, by_hand(network))}")
    with infer.load(arguments.output, arguments.threads) as model:
        print(f"Slipstream: {classified(images, model)}")


if __name__ == "__main__":
    main()
