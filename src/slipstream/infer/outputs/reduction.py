"""Replace a model's outputs by the classes with the highest scores, or by selected boxes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slipstream.infer.accuracy.reference import Reference
from slipstream.infer.graph.graph import Graph
from slipstream.infer.importers import Imported
from slipstream.infer.outputs.box_layouts import detect_layout
from slipstream.infer.outputs.boxes import BoxOptions, shapes_of, with_boxes
from slipstream.infer.outputs.outputs import describe_outputs, with_room, with_top
from slipstream.infer.samples import Samples, synthetic

EXAMPLES = 4  # inputs that are run to recognise a layout. Chosen by hand, not measured.


@dataclass(frozen=True)
class OutputReduction:
    """Choice of a package's outputs: the best classes, selected boxes, or the model's own outputs.

    Args:
        top: Number of classes to output (default None: the best classes are not selected).
        boxes: Rules that select boxes (default None: boxes are not selected).
    """

    top: int | None = None
    boxes: BoxOptions | None = None

    def apply(self, graph: Graph) -> Graph:
        """Return the graph with the new outputs.

        Call `apply` after the search, because the search compares candidates by the model's own
        outputs.

        Raises:
            UsageError: the outputs of the graph cannot be reduced.
        """
        if self.top is not None:
            return with_top(graph, self.top)
        return graph if self.boxes is None else with_boxes(graph, self.boxes)

    def prepare(self, imported: Imported) -> Imported:
        """Return the model, with the names of the new outputs free.

        Values of the model that have one of these names are renamed.

        Call `prepare` before the search, because the search refers to values by name.

        Raises:
            UsageError: the outputs of the model cannot be reduced.
        """
        self.apply(imported.graph)
        if self.top is None and self.boxes is None:
            return imported
        graph = with_room(imported.graph)
        return replace(imported, graph=graph, is_classifier=self.top is not None)

    def with_known_layout(
        self, imported: Imported, samples: Samples | None, threads: int
    ) -> tuple[OutputReduction, tuple[str, ...]]:
        """Recognise the layout of the model's boxes from its results for a few inputs.

        Args:
            imported: Model whose outputs are boxes.
            samples: Inputs of the model; None for random inputs.
            threads: Number of threads that run the model.

        Returns:
            The same reduction with the layout set, and a note that names the layout. If the
            reduction does not select boxes, it is unchanged and there is no note.

        Raises:
            UsageError: the model's results for the inputs are not boxes and scores.
        """
        if self.boxes is None:
            return self, ()
        graph = imported.graph
        inputs = synthetic(graph, EXAMPLES) if samples is None else samples
        reference = Reference(graph, threads, imported.origin)
        try:
            examples = [inputs[index] for index in range(min(EXAMPLES, len(inputs)))]
            outputs = [case.outputs for case in reference.cases(examples).cases]
        finally:
            reference.close()
        layout = detect_layout(
            self.boxes.layout, shapes_of(graph), describe_outputs(graph), outputs
        )
        boxes = replace(self.boxes, layout=layout.name)
        return OutputReduction(boxes=boxes), (
            f"boxes are read in the layout {layout.name}: {layout.description}",
        )
