"""The reference: ONNX Runtime runs the imported graph in float32, without optimisations.

The outputs of every candidate are compared with the outputs of the reference.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.accuracy.accuracy import Comparison
from slipstream.infer.accuracy.yardstick import Yardstick
from slipstream.infer.engines import Executable
from slipstream.infer.engines.onnxruntime import graph_session
from slipstream.infer.engines.protocol import Recipe
from slipstream.infer.engines.standard import standard_graph
from slipstream.infer.graph.graph import Array, Graph
from slipstream.infer.samples import Sample


@dataclass(frozen=True)
class ReferenceCase:
    """A sample and the reference's outputs for it.

    Args:
        sample: Inputs of one run, and their labels if there are any.
        outputs: Outputs of the reference, by name.
    """

    sample: Sample
    outputs: Mapping[str, Array]


@dataclass(frozen=True)
class ReferenceCases:
    """Samples, each with the reference's outputs; candidates are compared with these outputs.

    Args:
        cases: Samples, each with the reference's outputs.
        yardstick: Division of each output into groups of channels; each group has a signal-to-noise
            ratio of its own.
    """

    cases: tuple[ReferenceCase, ...]
    yardstick: Yardstick

    def __len__(self) -> int:
        return len(self.cases)

    def first(self, count: int) -> ReferenceCases:
        """Return the first `count` cases, or all if there are fewer."""
        return replace(self, cases=self.cases[:count])

    def compare(self, executable: Executable) -> Comparison:
        """Run an executable on all samples and compare its outputs with the reference's."""
        comparison = Comparison(self.yardstick)
        for case in self.cases:
            outputs = executable.run(case.sample.inputs)
            comparison.add(outputs, case.outputs, case.sample.labels)
        return comparison


class Reference:
    """The reference of one model.

    Args:
        graph: Graph of the imported model, before any rewrite.
        threads: Number of threads of one run.
        origin: Source of the model, for error messages.

    Raises UsageError if ONNX Runtime cannot run the graph.
    """

    def __init__(self, graph: Graph, threads: int, origin: str) -> None:
        recipe = Recipe(engine="onnxruntime", rewrites=False)
        self._yardstick = Yardstick()
        self._seconds = 0.0
        try:
            self._executable = graph_session(standard_graph(graph, recipe), threads)
        except UnsupportedError as error:
            raise UsageError(f"{origin} cannot be run: {error}") from error

    @property
    def seconds(self) -> float:
        """Shortest time in seconds in which `learn` read and ran a sample; 0 before `learn`."""
        return self._seconds

    def learn(
        self,
        samples: Iterable[Sample],
        *,
        is_classifier: bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Run the reference on samples, to choose the yardstick and to measure the time of a run.

        The yardstick divides each output into groups of channels, from the outputs of these runs.

        Args:
            samples: One or more samples.
            is_classifier: Whether the first output has a number for each class along its last
                axis; see `Yardstick.of`.
            clock: Function that returns the time in seconds.
        """
        outputs: list[Mapping[str, Array]] = []
        times: list[float] = []
        begin = clock()
        for sample in samples:
            outputs.append(self._run(sample))
            now = clock()
            times.append(now - begin)
            begin = now
        self._seconds = min(times)
        self._yardstick = Yardstick.of(outputs, is_classifier=is_classifier)

    def comparison(self) -> Comparison:
        """Return a comparison that has no samples yet."""
        return Comparison(self._yardstick)

    def compare(
        self, rivals: Sequence[tuple[Executable, Comparison]], samples: Iterable[Sample]
    ) -> None:
        """Run executables on samples, and add the outputs of each executable to its comparison."""
        for sample in samples:
            reference = self._run(sample)
            for executable, comparison in rivals:
                comparison.add(executable.run(sample.inputs), reference, sample.labels)

    def cases(self, samples: Iterable[Sample]) -> ReferenceCases:
        """Run the reference on samples, and return the samples with the reference's outputs."""
        cases = tuple(ReferenceCase(sample, self._run(sample)) for sample in samples)
        return ReferenceCases(cases, self._yardstick)

    def _run(self, sample: Sample) -> dict[str, Array]:
        """Return the outputs for a sample; raise UsageError if a label is not a class number."""
        outputs = self._executable.run(sample.inputs)
        if sample.labels is not None:
            name, first = next(iter(outputs.items()))
            classes = first.size // len(sample.labels)
            if classes < 2 or first.size % len(sample.labels):
                raise UsageError(
                    f"the data has labels, and the output {name} {first.shape} has no classes to"
                    " tell apart: leave the labels out"
                )
            if sample.labels.min() < 0 or sample.labels.max() >= classes:
                raise UsageError(
                    f"a label is {sample.labels.max()}; the output {name} {first.shape} has the"
                    f" classes 0 to {classes - 1}"
                )
        return outputs

    def close(self) -> None:
        """Close the session and release its memory."""
        self._executable.close()
