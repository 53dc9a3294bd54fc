"""What is right: the graph as imported, run by ONNX Runtime in float32, not optimised."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from slipstream.errors import UnsupportedError, UsageError
from slipstream.infer.accuracy.accuracy import Comparison
from slipstream.infer.accuracy.yardstick import Yardstick
from slipstream.infer.data import Sample
from slipstream.infer.engines import Executable
from slipstream.infer.engines.onnxruntime import graph_session
from slipstream.infer.engines.protocol import Recipe
from slipstream.infer.engines.standard import standard_graph
from slipstream.infer.graph.graph import Array, Graph
from slipstream.infer.search.mixed_precision import ReferenceCase


class Reference:
    """Results that are right, and what candidates' results are measured by."""

    def __init__(self, graph: Graph, threads: int, origin: str) -> None:
        """Raises UsageError where it cannot be run."""
        recipe = Recipe(engine="onnxruntime", rewrites=False)
        self.yardstick = Yardstick()
        self.seconds = 0.0
        try:
            self._executable = graph_session(standard_graph(graph, recipe), threads)
        except UnsupportedError as error:
            raise UsageError(f"{origin} cannot be run: {error}") from error

    def learn(
        self,
        samples: Iterable[Sample],
        *,
        is_classifier: bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Find the yardstick by the results for some samples, one or more, and how long it takes to
        read and to run one (`seconds`, of the fastest, by `clock`). `is_classifier` is as
        `Yardstick.of` has it."""
        outputs: list[Mapping[str, Array]] = []
        times: list[float] = []
        begin = clock()
        for sample in samples:
            outputs.append(self._run(sample))
            now = clock()
            times.append(now - begin)
            begin = now
        self.seconds = min(times)
        self.yardstick = Yardstick.of(outputs, is_classifier=is_classifier)

    def comparison(self) -> Comparison:
        """A comparison without any sample yet."""
        return Comparison(self.yardstick)

    def compare(
        self, rivals: Sequence[tuple[Executable, Comparison]], samples: Iterable[Sample]
    ) -> None:
        """Add to the comparisons of executables, sample by sample."""
        for sample in samples:
            right = self._run(sample)
            for executable, comparison in rivals:
                comparison.add(executable.run(sample.inputs), right, sample.labels)

    def cases(self, samples: Iterable[Sample]) -> list[ReferenceCase]:
        """Samples with the right results for them."""
        return [ReferenceCase(sample, self._run(sample)) for sample in samples]

    def _run(self, sample: Sample) -> dict[str, Array]:
        """The results for a sample; UsageError where its labels are none of the model's classes."""
        found = self._executable.run(sample.inputs)
        if sample.labels is not None:
            name, first = next(iter(found.items()))
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
        return found

    def close(self) -> None:
        """Give its memory back."""
        self._executable.close()
