"""Named architectures traced in the precision that a framework trains them in."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from slipstream.forecast.trace.architectures.names import find
from slipstream.forecast.trace.module import trace
from slipstream.forecast.work.workload import Workload

DTYPES = {"fp32": None, "tf32": None, "fp16": torch.float16, "bf16": torch.bfloat16}


def traced(
    name: str,
    samples: int,
    *,
    sizes: Mapping[str, Any],
    inputs: Mapping[str, Any],
    precision: str = "fp32",
    whole: bool = False,
) -> Workload:
    """Returns the workload of a named architecture.

    Args:
        name: that `names.find` knows.
        samples: of the micro-batch, at least 1.
        sizes: keywords of how it is made.
        inputs: keywords of its batch.
        precision: "fp32", "tf32", "fp16" or "bf16"; 16 bits by casts where they help.
        whole: all of the module is in 16 bits.

    Raises:
        UsageError: no architecture has that name.
    """
    architecture = find(name)
    dtype = DTYPES[precision]
    return trace(
        partial(architecture.make, **sizes),
        partial(architecture.inputs, samples, **inputs),
        name=name,
        samples=samples,
        autocast=None if whole else dtype,
        dtype=dtype if whole else None,
    )
