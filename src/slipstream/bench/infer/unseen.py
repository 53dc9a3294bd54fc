"""Comparison of a compiled model with the float32 model, on inputs that no set in `samples` has.

    python -m slipstream.bench.infer.unseen JOB

JOB is JSON text from `InferJob.as_text`. The process prints a line of JSON with the signal-to-noise
ratio in dB, the lowest over all outputs. Only one input is in memory at a time.
"""

# PyTorch's type stubs leave some types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import json
import sys

import numpy as np

from slipstream.bench.infer.contenders import CONTENDERS, OURS_BEST
from slipstream.bench.infer.job import InferJob
from slipstream.bench.infer.models import find_model
from slipstream.bench.infer.runners import load
from slipstream.bench.infer.samples import FIRST_UNSEEN
from slipstream.infer.accuracy.accuracy import Comparison


def main(text: str) -> None:
    """Compare a compiled model with the float32 model, and print the signal-to-noise ratio."""
    job = InferJob.from_text(text)
    model = find_model(job.model)
    reference, _ = load(CONTENDERS["pytorch"], job)
    ours, _ = load(CONTENDERS[OURS_BEST], job)
    comparison = Comparison()
    for seed in range(FIRST_UNSEEN, FIRST_UNSEEN + job.unseen):
        inputs = {name: np.asarray(array) for name, array in model.inputs(seed).items()}
        comparison.add(ours(inputs), reference(inputs))
    print(json.dumps({"snr_db": comparison.snr_db}))


if __name__ == "__main__":
    main(sys.argv[1])
