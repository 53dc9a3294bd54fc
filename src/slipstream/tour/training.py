"""The demo's training, run as its users run it: `slipstream run -n RANKS train.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from slipstream.errors import SlipstreamError
from slipstream.tour import example


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a training came to.

    Args:
        checkpoint: file of its weights.
        accuracy: share of the test pictures that it classifies rightly.
        rate: pictures per second of all ranks, in steps.
        step: seconds of a step.
        seconds: of all steps.
        whole_seconds: with reading the pictures, tests and checkpoints.
    """

    checkpoint: Path
    accuracy: float
    rate: float
    step: float
    seconds: float
    whole_seconds: float


def train(output: Path, *, ranks: int, epochs: int, samples: int, stream: TextIO | None) -> Trained:
    """Trains; blocks until it has ended.

    Args:
        output: folder for the checkpoint and the results.
        ranks: processes of this host.
        epochs: to train.
        samples: pictures of an epoch, and at most so many for tests; a step's at least.
        stream: on which the training shows itself, live where that is a terminal; None: it shows
            errors only, on stderr.

    Raises:
        SlipstreamError: it failed; what it said was shown.
    """
    command = [sys.executable, "-m", "slipstream.cli", "run", "-n", str(ranks)]
    if stream is None:
        command += ["--output", "failed"]
    elif stream.isatty():
        command += ["--tty"]
    script = [str(example.folder() / "train.py"), "--output", str(output)]
    script += ["--epochs", str(epochs), "--threads", str(example.THREADS)]
    if samples < example.SAMPLES:
        script += ["--limit", str(samples)]
    ended = subprocess.run(
        [*command, *script],
        check=False,
        stdout=stream or subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": str(example.THREADS)},
    )
    if ended.returncode:
        raise SlipstreamError(f"the training ended with exit code {ended.returncode}; see above")
    return _read(output, example.BATCH * ranks, epochs, samples)


def _read(output: Path, batch: int, epochs: int, samples: int) -> Trained:
    result = json.loads((output / "result.json").read_text())
    step = batch / result["samples_per_second"]
    return Trained(
        checkpoint=output / "checkpoint.pt",
        accuracy=result["test_accuracy"],
        rate=result["samples_per_second"],
        step=step,
        seconds=step * (samples // batch) * epochs,
        whole_seconds=result["seconds"],
    )
