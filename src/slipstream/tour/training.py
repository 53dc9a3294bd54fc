"""Training of the demo, in the way its users run it: `slipstream run -n RANKS train.py`."""

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
    """Results of a training.

    Args:
        checkpoint: Path of the file with the trained weights.
        accuracy: Share of correctly classified test images, 0 to 1.
        rate: Images per second of all ranks together, measured during steps.
        step: Duration of a step in seconds.
        seconds: Duration of all steps in seconds.
        whole_seconds: Duration of the whole training in seconds, including reading data, tests and
            checkpoints.
    """

    checkpoint: Path
    accuracy: float
    rate: float
    step: float
    seconds: float
    whole_seconds: float


def train(output: Path, *, ranks: int, epochs: int, samples: int, stream: TextIO | None) -> Trained:
    """Train the network of the demo, and wait until the training has ended.

    Args:
        output: Folder for the checkpoint and the results.
        ranks: Number of ranks on this host.
        epochs: Number of epochs.
        samples: Number of images in an epoch, and highest number of test images; at least the
            number of images in one step.
        stream: Stream to which the output of the training is written as it appears; None writes
            only errors, to stderr.

    Raises:
        SlipstreamError: the training failed; the output of the training has been written.
    """
    command = [sys.executable, "-m", "slipstream.cli", "run", "-n", str(ranks)]
    if stream is None:
        command += ["--show", "failed"]
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
