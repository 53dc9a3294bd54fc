"""Runs one contender of a benchmark of pictures: python -m slipstream.bench.images.process JOB.

It answers lines of its standard input with lines of JSON: first what loading came to, then for
"labels" those of all pictures, and for "turn SECONDS" the seconds of each picture, or of a stream
the mean, and the mean of processors' seconds; at the end of the input it ends. It runs on the cores
that it was started on.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from slipstream.bench.images.contenders import CONTENDERS
from slipstream.bench.images.pipelines import Stream, load
from slipstream.bench.infer.job import InferJob
from slipstream.bench.infer.process import answer

PICTURES = "pictures"  # folder of the files that are measured


def main(text: str) -> None:
    """Load a contender, and answer until there is no more to answer."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what engines print is no answer
    warnings.simplefilter("ignore")
    job = InferJob.from_text(text)
    contender = CONTENDERS[job.contender]
    files = [path.read_bytes() for path in sorted(Path(job.folder, PICTURES).iterdir())]
    begin = time.perf_counter()
    stream, detail = load(contender, job)
    next(iter(stream(files[:1])))
    answer(answers, {"load_seconds": time.perf_counter() - begin, "detail": detail})
    turn = single_turn if contender.task == "latency" else stream_turn
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        if command == "labels":
            answer(answers, {"labels": list(stream(files))})
        elif command == "turn":
            seconds, cpu_seconds = turn(stream, files, float(argument))
            answer(answers, {"seconds": seconds, "cpu_seconds": cpu_seconds})


def single_turn(stream: Stream, files: list[bytes], seconds: float) -> tuple[list[float], float]:
    """Return the seconds of single pictures, each waited for, after two that do not count; and
    the mean seconds of processors that one takes."""
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
    """Return the mean seconds of a picture, one stream from its begin to its end, and those of
    processors."""
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


if __name__ == "__main__":
    main(sys.argv[1])
