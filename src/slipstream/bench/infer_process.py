"""Runs one contender of an inference benchmark: python -m slipstream.bench.infer_process JOB.

It answers lines of its standard input with lines of JSON: first what loading came to, then for
"compare" the signal to noise of its outputs, and for "turn SECONDS" the seconds of single calls; at
the end of the input it ends. It runs on the cores that it was started on.
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

from slipstream.bench.infer_contenders import CONTENDERS
from slipstream.bench.infer_job import Job
from slipstream.bench.infer_runners import Run, load
from slipstream.bench.infer_samples import INPUTS, OUTPUTS, Sample, read_samples, signal_to_noise

MOST_CALLS = 1000  # of a turn


def main(text: str) -> None:
    """Load a contender, and answer until there is no more to answer."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what engines print is no answer
    warnings.simplefilter("ignore")
    job = Job.from_text(text)
    inputs = read_samples(Path(job.folder, INPUTS))
    begin = time.perf_counter()
    run, detail = load(CONTENDERS[job.contender], job)
    run(inputs[0])
    seconds = time.perf_counter() - begin
    _answer(answers, {"load_seconds": seconds, "detail": detail})
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        if command == "compare":
            found = [{k: np.array(v) for k, v in run(sample).items()} for sample in inputs]
            right = read_samples(Path(job.folder, OUTPUTS))
            _answer(answers, {"snr_db": signal_to_noise(found, right)})
        elif command == "turn":
            _answer(answers, {"seconds": turn(run, inputs[0], float(argument))})
        elif command == "memory":
            _answer(answers, {"peak_bytes": peak_bytes()})


def turn(run: Run, inputs: Sample, seconds: float) -> list[float]:
    """Returns the seconds of calls one after the other: after one that does not count, since
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
    """Returns the most memory that this process ever had resident; 0 where Linux does not say."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    lines = (line.split() for line in status.splitlines() if line.startswith("VmHWM:"))
    return next((int(words[1]) * 1024 for words in lines), 0)


def _answer(stream: Any, content: dict[str, Any]) -> None:
    stream.write(json.dumps(content) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
