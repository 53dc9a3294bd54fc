"""Traces of architectures, found by name, in the precision in which a framework trains them."""

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
    """Trace an architecture that is found by its name, and return its workload.

    Args:
        name: Name or alias of the architecture, as in `architectures.names.find`.
        samples: Number of samples in the micro-batch, at least 1.
        sizes: Keyword arguments of the function that makes the architecture.
        inputs: Keyword arguments of the function that makes a batch for the architecture.
        precision: Precision of matrix products: "fp32" (default), "tf32", "fp16" or "bf16"; "fp16"
            and "bf16" use autocast.
        whole: Whether the whole module is in 16 bits, without autocast (default False).

    Raises:
        UsageError: No architecture has that name.
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
