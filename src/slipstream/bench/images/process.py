"""Process that runs one contender: python -m slipstream.bench.images.process JOB.

JOB is JSON text from `InferJob.as_text`. Like `slipstream.bench.infer.process`, the process answers
commands on standard input:

    labels          labels of all images
    turn SECONDS    seconds of each image (a stream: mean seconds), and processor seconds
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from slipstream.bench.images.contenders import CONTENDERS
from slipstream.bench.images.pipelines import Stream, load
from slipstream.bench.infer.job import InferJob
from slipstream.bench.infer.process import answer_commands

IMAGES = "images"  # folder of the measured image files


class PipelineProcess:
    """A contender that labels JPEG files.

    Args:
        job: Contender to run, and folder of its files.
    """

    _stream: Stream

    def __init__(self, job: InferJob) -> None:
        self._job = job
        self._contender = CONTENDERS[job.contender]
        self._files = [path.read_bytes() for path in sorted(Path(job.folder, IMAGES).iterdir())]

    def load(self) -> str:
        """Load the contender, label one image, and return the contender's description."""
        self._stream, detail = load(self._contender, self._job)
        next(iter(self._stream(self._files[:1])))
        return detail

    def labels(self, _: str) -> dict[str, Any]:
        """Return the labels of all images."""
        return {"labels": list(self._stream(self._files))}

    def turn(self, seconds: str) -> dict[str, Any]:
        """Run one turn; return the seconds of the images, and the processor seconds per image."""
        turn = single_turn if self._contender.task == "latency" else stream_turn
        taken, cpu_seconds = turn(self._stream, self._files, float(seconds))
        return {"seconds": taken, "cpu_seconds": cpu_seconds}


def single_turn(stream: Stream, files: list[bytes], seconds: float) -> tuple[list[float], float]:
    """Label images one by one; return the seconds of each image, and the mean processor seconds.

    The first two images are not timed.
    """
    for data in files[:2]:
        list(stream([data]))
    taken: list[float] = []
    begin_cpu, end = time.process_time(), time.perf_counter() + seconds
    for data in itertools.cycle(files):
        begin = time.perf_counter()
        list(stream([data]))
        now = time.perf_counter()
        taken.append(now - begin)
        if now >= end:
            break
    return taken, (time.process_time() - begin_cpu) / len(taken)


def stream_turn(stream: Stream, files: list[bytes], seconds: float) -> tuple[list[float], float]:
    """Label a stream of images; return the mean seconds and mean processor seconds per image."""
    list(stream(files[:4]))
    begin_cpu, begin = time.process_time(), time.perf_counter()
    count = sum(1 for _ in stream(_until(begin + seconds, files)))
    taken = (time.perf_counter() - begin) / count
    return [taken], (time.process_time() - begin_cpu) / count


def _until(end: float, files: Iterable[bytes]) -> Iterator[bytes]:
    for data in itertools.cycle(files):
        yield data
        if time.perf_counter() >= end:
            return


def main(text: str) -> None:
    """Load the contender that a job names, and answer commands."""
    process = PipelineProcess(InferJob.from_text(text))
    answer_commands(process.load, {"labels": process.labels, "turn": process.turn})


if __name__ == "__main__":
    main(sys.argv[1])
