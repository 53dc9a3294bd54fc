"""Check an import: compare the results of the imported graph with the results of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.accuracy.accuracy import Comparison
from slipstream.infer.engines.onnxruntime import graph_session
from slipstream.infer.graph.graph import Array, Graph

# Lowest signal-to-noise ratio of a faithful graph in dB. Rounding alone leaves 100 dB and more.
LEAST_DB = 60.0


@dataclass(frozen=True, slots=True)
class Proved:
    """An imported graph, and how closely its results agree with the results of the model.

    Args:
        graph: Graph with fixed shapes.
        snr_db: Signal-to-noise ratio, in dB, of the graph's results against the model's results for
            the example inputs.
    """

    graph: Graph
    snr_db: float

    @property
    def note(self) -> str:
        """A sentence that tells the user the signal-to-noise ratio."""
        return (
            "the signal-to-noise ratio of the imported graph against the model is"
            f" {self.snr_db:.0f} dB"
        )


def prove(
    graph: Graph,
    inputs: Mapping[str, Array],
    expected: Mapping[str, Array],
    what: str,
    least_db: float = LEAST_DB,
) -> Proved:
    """Run an imported graph, and compare its results with the results of the original model.

    ONNX Runtime runs the graph as it was imported, without Slipstream's rewrites.

    Args:
        graph: Graph of ONNX operators.
        inputs: Example arrays, by input name.
        expected: Results of the model for the example arrays, by output name.
        what: Name of the model in error messages.
        least_db: Lowest accepted signal-to-noise ratio in dB, from 0 to 200 (default 60).

    Raises:
        UsageError: If ONNX Runtime cannot run the graph, or if the graph's results differ from the
            model's.
    """
    try:
        session = graph_session(graph, 1)
        results = session.run({name: np.asarray(item, order="C") for name, item in inputs.items()})
    except (UnsupportedError, RuntimeError) as error:
        raise UsageError(f"{what}: the imported graph cannot be run: {error}") from error
    comparison = Comparison()
    comparison.add(results, expected)
    if comparison.snr_db < least_db:
        raise UsageError(
            f"{what}: the imported graph computes something else than the model: the"
            f" signal-to-noise ratio is {comparison.snr_db:.0f} dB; allowed: {least_db:.0f} and"
            " more; a model must not draw random numbers or branch on its inputs"
        )
    return Proved(graph, comparison.snr_db)
