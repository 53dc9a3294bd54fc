"""Contenders of the image benchmark: pipelines from JPEG files to labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from slipstream.bench.infer.contenders import ORT_STATIC, OV_INT8

Task = Literal["latency", "stream"]
Way = Literal["serial", "prefetch", "queue", "preload"]

PACKAGE = "images.slip"


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageContender:
    """One pipeline from JPEG files to labels.

    Args:
        name: Name in tables and JSON.
        title: Readable name.
        task: Task of the pipeline: "latency" of single images, or a "stream" of images.
        engine: Name of the engine in `bench.infer.contenders.CONTENDERS`; "" for Slipstream's
            pipeline.
        way: Kind of stream. "serial" handles one image after another. "prefetch" decodes ahead in a
            thread. "queue" uses OpenVINO's asynchronous requests. "preload" is Slipstream's stream,
            whose threads decode the next images while the model runs.
        engine_threads: Number of threads of the engine; 0 for one thread per core.
        file: Name of the file in the model's folder that the contender loads.
        is_plain: Whether the pipeline uses a competing engine and handles one image after another.
            The performance targets compare Slipstream's pipeline with these plain pipelines.
    """

    name: str
    title: str
    task: Task
    engine: str = ""
    way: Way = "serial"
    engine_threads: int = 0
    file: str = PACKAGE
    is_plain: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether the contender is Slipstream's pipeline."""
        return not self.engine


ENGINES: Mapping[str, tuple[str, str]] = {
    "ort-int8": ("ONNX Runtime int8", ORT_STATIC),
    "openvino-int8": ("OpenVINO int8", OV_INT8),
}


def _peer(task: Task, engine: str, way: Way = "serial", threads: int = 0) -> ImageContender:
    title, file = ENGINES[engine]
    suffixes = {
        "serial": "",
        "prefetch": ", prefetch, 1 thread" if threads else ", prefetch",
        "queue": ", queue",
        "preload": "",
    }
    return ImageContender(
        name=f"{task}-{engine}-{way}-{threads}",
        title=f"{title}{suffixes[way]}",
        task=task,
        engine=engine,
        way=way,
        engine_threads=threads,
        file=file,
        is_plain=way == "serial",
    )


_ALL = (
    *(_peer("latency", engine) for engine in ENGINES),
    ImageContender(name="latency-ours", title="Slipstream", task="latency"),
    *(_peer("stream", engine) for engine in ENGINES),
    *(_peer("stream", engine, "prefetch") for engine in ENGINES),
    *(_peer("stream", engine, "prefetch", 1) for engine in ENGINES),
    _peer("stream", "openvino-int8", "queue"),
    ImageContender(name="stream-ours-serial", title="Slipstream, preload off", task="stream"),
    ImageContender(name="stream-ours", title="Slipstream", task="stream", way="preload"),
)

CONTENDERS: Mapping[str, ImageContender] = {contender.name: contender for contender in _ALL}
