"""Peak rates of the cores: python -m slipstream.bench.infer.peak THREADS prints JSON.

In short bursts, Slipstream's kernels compute a 1 x 1 convolution whose operands stay in the caches.
The result is the rate of the fastest burst.
"""

# NumPy's type stubs leave result types unspecified.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping

import numpy as np

from slipstream.infer.engines.native import Native
from slipstream.infer.graph.graph import Graph, Node, Value
from slipstream.infer.native.formats import BFloat16, Bytes, Format
from slipstream.infer.native.runner import Runner

CHANNELS, SIDE = 512, 14  # so small that the operands stay in the caches
BURSTS = 400
KERNEL = "convolution"
FLOAT = np.dtype(np.float32)


def main(text: str) -> None:
    """Print the peak rates by precision, in operations per second."""
    print(json.dumps(peaks(int(text))))


def peaks(threads: int) -> dict[str, float]:
    """Return the peak rates by precision, in operations per second.

    The precisions are fp32 and, if the processor supports them, int8 and bf16. A multiplication and
    the addition of its product are two operations.
    """
    formats: Mapping[str, Format | None] = {
        "fp32": None,
        "int8": Bytes.of_range(-4.0, 4.0),
        "bf16": BFloat16(),
    }
    supported = Native().precisions()
    return {name: _rate(format_, threads) for name, format_ in formats.items() if name in supported}


def _rate(stored: Format | None, threads: int) -> float:
    """Return the rate of a convolution that reads its input in the given format."""
    graph = _graph()
    runner = Runner(graph, {} if stored is None else {"middle": stored}, threads)
    inputs = {"x": np.random.default_rng(0).standard_normal((1, CHANNELS, SIDE, SIDE), np.float32)}
    best = math.inf
    for _ in range(BURSTS):
        steps = runner.profile(inputs)
        taken = (seconds for kernel, value, seconds in steps if (kernel, value) == (KERNEL, "y"))
        best = min([best, *taken])
    return 2.0 * CHANNELS**2 * SIDE**2 / best


def _graph() -> Graph:
    """Return a graph of two convolutions in a chain."""
    random = np.random.default_rng(1)
    shape = (1, CHANNELS, SIDE, SIDE)
    weights = random.standard_normal((2, CHANNELS, CHANNELS, 1, 1), np.float32)
    return Graph(
        inputs={"x": Value(FLOAT, shape)},
        outputs=["y"],
        nodes=[
            Node("Conv", ["x", "first"], ["middle"], {"kernel_shape": [1, 1]}),
            Node("Conv", ["middle", "second"], ["y"], {"kernel_shape": [1, 1]}),
        ],
        constants={"first": weights[0], "second": weights[1]},
        values={"middle": Value(FLOAT, shape), "y": Value(FLOAT, shape)},
    )


if __name__ == "__main__":
    main(sys.argv[1])
