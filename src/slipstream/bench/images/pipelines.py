"""Pipelines from JPEG files to labels, with Slipstream and with other engines."""

# The type stubs of these packages leave most types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

import io
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slipstream.bench.images.contenders import ImageContender
from slipstream.bench.infer.contenders import CONTENDERS
from slipstream.bench.infer.job import InferJob
from slipstream.bench.infer.runners import load as load_engine
from slipstream.infer.engines.openvino import openvino_package

SIZE, CROP = 256, 224  # shorter side of an image in pixels, before and after the crop
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)
AHEAD = 4  # number of images that a thread may prepare ahead

Stream = Callable[[Iterable[bytes]], Iterator[int]]


def load(contender: ImageContender, job: InferJob) -> tuple[Stream, str]:
    """Return a function that yields the label of each JPEG file in order, and a description.

    The description is the engine and precision of the model compiled by Slipstream; it is empty for
    other engines.
    """
    if contender.is_ours:
        return _ours(contender, job)
    if contender.way == "queue":
        return _queue(contender, job), ""
    label = _labeller(contender, job)
    if contender.way == "prefetch":
        return lambda files: map(label, prefetched(files)), ""
    return lambda files: (label(prepare(data)) for data in files), ""


def prepare(data: bytes) -> NDArray[np.float32]:
    """Decode, resize, crop and normalise an image: return float32 [1, 3, 224, 224]."""
    from PIL import Image

    image = Image.open(io.BytesIO(data)).convert("RGB")
    ratio = SIZE / min(image.size)
    columns, rows = round(image.width * ratio), round(image.height * ratio)
    resized = image.resize((columns, rows), Image.Resampling.BILINEAR)
    left, top = (columns - CROP) // 2, (rows - CROP) // 2
    pixels = np.asarray(resized.crop((left, top, left + CROP, top + CROP)), np.float32)
    normalised = (pixels / 255 - MEAN) / STD
    return np.ascontiguousarray(normalised.transpose(2, 0, 1)[np.newaxis])


def _labeller(contender: ImageContender, job: InferJob) -> Callable[[NDArray[np.float32]], int]:
    run, _ = load_engine(CONTENDERS[contender.engine], job)
    return lambda image: int(run({"image": image})["logits"].argmax())


def prefetched(files: Iterable[bytes]) -> Iterator[NDArray[np.float32]]:
    """Yield images in the order of the files; a thread prepares up to `AHEAD` images in advance."""
    ready: queue.Queue[NDArray[np.float32] | None] = queue.Queue(AHEAD)

    def work() -> None:
        for data in files:
            ready.put(prepare(data))
        ready.put(None)

    thread = threading.Thread(target=work)
    thread.start()
    while (image := ready.get()) is not None:
        yield image
    thread.join()


def _queue(contender: ImageContender, job: InferJob) -> Stream:
    """Return a function that labels images with OpenVINO's queue of asynchronous requests."""
    openvino = openvino_package()
    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "THROUGHPUT",
        "INFERENCE_NUM_THREADS": job.threads,
    }
    compiled: Any = openvino.Core().compile_model(Path(job.folder, contender.file), "CPU", settings)

    def stream(files: Iterable[bytes]) -> Iterator[int]:
        labels: dict[int, int] = {}
        requests: Any = openvino.AsyncInferQueue(compiled)
        requests.set_callback(
            lambda request, number: labels.__setitem__(
                number, int(request.get_output_tensor(0).data.argmax())
            )
        )
        for number, data in enumerate(files):
            requests.start_async({0: prepare(data)}, number)
        requests.wait_all()
        yield from (labels[number] for number in sorted(labels))

    return stream


def _ours(contender: ImageContender, job: InferJob) -> tuple[Stream, str]:
    from slipstream import infer

    model = infer.load(Path(job.folder, contender.file), job.threads, check=False)
    recipe = model.manifest.recipe

    def label(outputs: Any) -> int:
        return int(outputs["labels"][0, 0])

    if contender.task == "latency":
        return lambda files: (label(model(data)) for data in files), (
            f"{recipe.engine} {recipe.precision}"
        )
    is_preloaded = contender.way == "preload"
    return (
        lambda files: model.stream(files, preload=is_preloaded, after=label),
        f"{recipe.engine} {recipe.precision}",
    )
