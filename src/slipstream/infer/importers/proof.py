"""What an importer made, run beside the model that it was made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.accuracy.accuracy import Comparison
from slipstream.infer.engines.onnxruntime import graph_session
from slipstream.infer.graph.graph import Array, Graph

LEAST_DB = 60.0  # signal to noise of a faithful graph: rounding alone leaves 100 and more


@dataclass(frozen=True, slots=True)
class Proved:
    """A graph and its accuracy against the model that it was made from.

    Args:
        graph: Graph of fixed shapes.
        snr_db: Signal-to-noise ratio of its results on the example, in dB.
    """

    graph: Graph
    snr_db: float

    @property
    def note(self) -> str:
        """The same, for people."""
        return f"the imported graph is the model's to {self.snr_db:.0f} dB"


def prove(
    graph: Graph,
    inputs: Mapping[str, Array],
    expected: Mapping[str, Array],
    what: str,
    least_db: float = LEAST_DB,
) -> Proved:
    """Run a graph on ONNX Runtime, as it is written, and compare its results.

    Args:
        graph: Graph of ONNX operators.
        inputs: Example arrays, by input name.
        expected: The model's own results for the example, by output name.
        what: Name of the model in errors.
        least_db: Lowest accepted signal-to-noise ratio in dB, from 0 to 200 (default 60).

    Raises UsageError if ONNX Runtime cannot run the graph or its results differ.
    """
    try:
        session = graph_session(graph, 1)
        results = session.run({name: np.asarray(item, order="C") for name, item in inputs.items()})
    except (UnsupportedError, RuntimeError) as error:
        raise UsageError(f"{what}: what was imported cannot be run: {error}") from error
    comparison = Comparison()
    comparison.add(results, expected)
    if comparison.snr_db < least_db:
        raise UsageError(
            f"{what}: what was imported computes something else: signal to noise is"
            f" {comparison.snr_db:.0f} dB, and {least_db:.0f} is the least; does the model draw"
            " random numbers, or take another way for other inputs?"
        )
    return Proved(graph, comparison.snr_db)
