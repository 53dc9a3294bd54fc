"""Process that makes one file: python -m slipstream.bench.images.prepare JOB.

JOB is JSON text from `InferJob.as_text`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from slipstream.bench.images.contenders import PACKAGE
from slipstream.bench.images.pipelines import prepare
from slipstream.bench.images.process import IMAGES
from slipstream.bench.infer.contenders import CONTENDERS, EXPORTED
from slipstream.bench.infer.job import InferJob
from slipstream.bench.infer.prepare import make_file
from slipstream.bench.infer.runners import load

# folder of the calibration images, which are not among the measured ones
CALIBRATION = "calibration"
LABELS = "labels.npy"  # file with the labels that ONNX Runtime computes with the network in float32


def _package(job: InferJob, target: Path) -> None:
    from slipstream import infer

    infer.compile(
        target.with_name(EXPORTED),
        target,
        infer.CompileOptions(
            data=target.with_name(CALIBRATION),
            pixels=True,
            top=1,
            snr_db=job.snr_db,
            seconds=job.seconds,
            threads=1,
        ),
    )


def _labels(job: InferJob, target: Path) -> None:
    run, _ = load(CONTENDERS["ort"], job)
    files = sorted(target.with_name(IMAGES).iterdir())
    labels = [int(run({"image": prepare(file.read_bytes())})["logits"].argmax()) for file in files]
    np.save(target, np.array(labels))


if __name__ == "__main__":
    make_file(sys.argv[1], {PACKAGE: _package, LABELS: _labels})
