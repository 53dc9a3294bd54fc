"""Contenders of `slipstream bench images`, and their ways from images to labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from slipstream.bench.infer.contenders import ORT_STATIC, OV_INT8

Task = Literal["latency", "stream"]
Way = Literal["serial", "prefetch", "queue", "preload"]

PACKAGE = "pictures.slip"


@dataclass(frozen=True, kw_only=True, slots=True)
class PictureContender:
    """One way from JPEG files to labels.

    Args:
        name: Name in tables and JSON.
        title: Title for people.
        task: "latency" of one picture, or "stream" of pictures.
        engine: a name of `bench.infer.contenders.CONTENDERS`; "" for ours.
        way: Kind of the stream: "serial", one image after another; "prefetch", a thread decodes
            ahead; "queue", OpenVINO's own requests in flight; "preload", ours.
        engine_threads: Threads of the engine; 0 for one per core.
        file: File in the model's folder that the contender loads.
        is_plain: it is what a good user writes, and what ours is held against.
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
        """Whether the contender is ours."""
        return not self.engine


ENGINES: Mapping[str, tuple[str, str]] = {
    "ort-int8": ("ONNX Runtime int8", ORT_STATIC),
    "openvino-int8": ("OpenVINO int8", OV_INT8),
}


def _peer(task: Task, engine: str, way: Way = "serial", threads: int = 0) -> PictureContender:
    title, file = ENGINES[engine]
    words = {
        "serial": "",
        "prefetch": ", prefetch, 1 thread" if threads else ", prefetch",
        "queue": ", queue",
        "preload": "",
    }
    return PictureContender(
        name=f"{task}-{engine}-{way}-{threads}",
        title=f"{title}{words[way]}",
        task=task,
        engine=engine,
        way=way,
        engine_threads=threads,
        file=file,
        is_plain=way == "serial",
    )


_ALL = (
    *(_peer("latency", engine) for engine in ENGINES),
    PictureContender(name="latency-ours", title="Slipstream", task="latency"),
    *(_peer("stream", engine) for engine in ENGINES),
    *(_peer("stream", engine, "prefetch") for engine in ENGINES),
    *(_peer("stream", engine, "prefetch", 1) for engine in ENGINES),
    _peer("stream", "openvino-int8", "queue"),
    PictureContender(name="stream-ours-serial", title="Slipstream, preload off", task="stream"),
    PictureContender(name="stream-ours", title="Slipstream", task="stream", way="preload"),
)

CONTENDERS: Mapping[str, PictureContender] = {contender.name: contender for contender in _ALL}
