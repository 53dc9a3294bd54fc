"""Runs one contender of an inference benchmark: python -m slipstream.bench.infer.process JOB.

It answers lines of its standard input with lines of JSON: first what loading came to, then for
"compare SET" the signal to noise of its outputs on a set of samples, for "turn SECONDS" the seconds
of single calls, and for "memory" its peak; at the end of the input it ends. It runs on the cores
that it was started on.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.bench.infer.contenders import CONTENDERS
from slipstream.bench.infer.job import InferJob
from slipstream.bench.infer.runners import Run, load
from slipstream.bench.infer.samples import HELD_OUT, JUDGING, Sample, read_samples, signal_to_noise

MOST_CALLS = 1000  # of a turn


def main(text: str) -> None:
    """Load a contender, and answer until there is no more to answer."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what engines print is no answer
    warnings.simplefilter("ignore")
    job = InferJob.from_text(text)
    first = read_samples(HELD_OUT.files(Path(job.folder))[0])[0]
    begin = time.perf_counter()
    run, detail = load(CONTENDERS[job.contender], job)
    run(first)
    seconds = time.perf_counter() - begin
    answer(answers, {"load_seconds": seconds, "detail": detail})
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        if command == "compare":
            answer(answers, {"snr_db": _compared(run, Path(job.folder), argument)})
        elif command == "turn":
            answer(answers, {"seconds": turn(run, first, float(argument))})
        elif command == "memory":
            answer(answers, {"peak_bytes": peak_bytes()})


def _compared(run: Run, folder: Path, name: str) -> float:
    """Signal to noise of outputs on a set of samples, in dB."""
    (files,) = (each.files(folder) for each in (JUDGING, HELD_OUT) if each.name == name)
    inputs, right = (read_samples(path) for path in files)
    found = [{key: np.array(array) for key, array in run(each).items()} for each in inputs]
    return signal_to_noise(found, right)


def turn(run: Run, inputs: Sample, seconds: float) -> list[float]:
    """Return the seconds of calls one after the other: after one that does not count, since
    others have had the caches meanwhile, as many as fit, and at least one."""
    run(inputs)
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while len(taken) < MOST_CALLS:
        begin = time.perf_counter()
        run(inputs)
        now = time.perf_counter()
        taken.append(now - begin)
        if now >= end:
            break
    return taken


def peak_bytes() -> int:
    """Return the most memory that this process ever had resident; 0 where Linux does not say."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    lines = (line.split() for line in status.splitlines() if line.startswith("VmHWM:"))
    return next((int(words[1]) * 1024 for words in lines), 0)


def answer(stream: Any, content: dict[str, Any]) -> None:
    """Write a line that the benchmark reads."""
    stream.write(json.dumps(content) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
