"""Process that runs one contender: python -m slipstream.bench.infer.process JOB.

JOB is JSON text from `InferJob.as_text`. The process loads the contender and writes a line of JSON
about the contender to standard output. Then the process answers each line of standard input with a
line of JSON, until standard input ends:

    compare SET     signal-to-noise ratio of the outputs on a set of samples
    turn SECONDS    seconds of single calls
    memory          peak memory of the process

The process stays on the cores on which it was started.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.bench.infer.contenders import CONTENDERS
from slipstream.bench.infer.job import InferJob
from slipstream.bench.infer.runners import Run, load
from slipstream.bench.infer.samples import HELD_OUT, JUDGING, Sample, read_samples, signal_to_noise

MOST_CALLS = 1000  # highest number of calls in a turn

Answers = Mapping[str, Callable[[str], dict[str, Any]]]


def answer_commands(load_contender: Callable[[], str], answers: Answers) -> None:
    """Load a contender, and answer commands until standard input ends.

    Args:
        load_contender: Function that loads the contender, computes a first result, and returns the
            description of the contender.
        answers: Functions that answer commands, by the name of the command. A function gets the
            argument of the command and returns the answer.
    """
    stream = os.fdopen(os.dup(1), "w", buffering=1)
    # engines may print to standard output, which is only for answers; so they print to stderr
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    begin = time.perf_counter()
    detail = load_contender()
    _write(stream, {"load_seconds": time.perf_counter() - begin, "detail": detail})
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        _write(stream, answers[command](argument))


def _write(stream: Any, answer: dict[str, Any]) -> None:
    stream.write(json.dumps(answer) + "\n")


class EngineProcess:
    """A contender that runs a model on prepared inputs.

    Args:
        job: Contender to run, and folder of its files.
    """

    _run: Run

    def __init__(self, job: InferJob) -> None:
        self._job = job
        self._first = read_samples(HELD_OUT.files(Path(job.folder))[0])[0]

    def load(self) -> str:
        """Load the contender, run it once, and return its description."""
        self._run, detail = load(CONTENDERS[self._job.contender], self._job)
        self._run(self._first)
        return detail

    def compare(self, name: str) -> dict[str, Any]:
        """Return the signal-to-noise ratio of the outputs on a set of samples, in dB."""
        (files,) = (
            samples.files(Path(self._job.folder))
            for samples in (JUDGING, HELD_OUT)
            if samples.name == name
        )
        inputs, expected = (read_samples(path) for path in files)
        outputs = [
            {key: np.array(array) for key, array in self._run(sample).items()} for sample in inputs
        ]
        return {"snr_db": signal_to_noise(outputs, expected)}

    def turn(self, seconds: str) -> dict[str, Any]:
        """Run one turn, and return the seconds of each call."""
        return {"seconds": turn(self._run, self._first, float(seconds))}

    def memory(self, _: str) -> dict[str, Any]:
        """Return the peak memory of this process in bytes."""
        return {"peak_bytes": peak_bytes()}


def turn(run: Run, inputs: Sample, seconds: float) -> list[float]:
    """Call a function for some seconds, 1 to `MOST_CALLS` times; return the seconds of each call.

    A first call is not timed, because the caches still hold the data of other contenders.
    """
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
    """Return the peak resident memory of this process in bytes; 0 if it cannot be read."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    lines = (line.split() for line in status.splitlines() if line.startswith("VmHWM:"))
    return next((int(words[1]) * 1024 for words in lines), 0)


def main(text: str) -> None:
    """Load the contender that a job names, and answer commands."""
    process = EngineProcess(InferJob.from_text(text))
    answers: Answers = {
        "compare": process.compare,
        "turn": process.turn,
        "memory": process.memory,
    }
    answer_commands(process.load, answers)


if __name__ == "__main__":
    main(sys.argv[1])
