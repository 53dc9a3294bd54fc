"""Makes a file of a benchmark of pictures: python -m slipstream.bench.images.prepare JOB."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np

from slipstream.bench.images.contenders import PACKAGE
from slipstream.bench.images.pipelines import prepare
from slipstream.bench.images.process import PICTURES
from slipstream.bench.infer.contenders import EXPORTED
from slipstream.bench.infer.job import InferJob

CALIBRATION = "calibration"  # folder of other pictures than those that are measured
RIGHT = "labels.npy"  # of the pictures: the network's in float32, by ONNX Runtime


def main(text: str) -> None:
    """Compile the model for pictures, or write what it says of them in float32."""
    job = InferJob.from_text(text)
    warnings.simplefilter("ignore")
    folder = Path(job.folder)
    if job.file == RIGHT:
        np.save(folder / RIGHT, np.array(_labels(folder)))
        return
    from slipstream import infer

    infer.compile(
        folder / EXPORTED,
        folder / PACKAGE,
        infer.CompileOptions(
            data=folder / CALIBRATION,
            pixels=True,
            top=1,
            snr_db=job.snr_db,
            seconds=job.seconds,
            threads=1,
        ),
    )


def _labels(folder: Path) -> list[int]:
    from slipstream.bench.infer.contenders import CONTENDERS
    from slipstream.bench.infer.runners import load

    run, _ = load(CONTENDERS["ort"], InferJob(model="", folder=str(folder)))
    files = sorted((folder / PICTURES).iterdir())
    return [int(run({"image": prepare(file.read_bytes())})["logits"].argmax()) for file in files]


if __name__ == "__main__":
    main(sys.argv[1])
