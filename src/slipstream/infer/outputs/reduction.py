"""What a package gives in place of all of a model's numbers: the best classes, or boxes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slipstream.infer.accuracy.reference import Reference
from slipstream.infer.data import Samples, synthetic
from slipstream.infer.graph.graph import Graph
from slipstream.infer.importers import Imported
from slipstream.infer.outputs.box_layouts import layout_of
from slipstream.infer.outputs.boxes import BoxOptions, shapes_of, with_boxes
from slipstream.infer.outputs.outputs import described, with_room, with_top

EXAMPLES = 4  # inputs whose results tell how boxes are read


@dataclass(frozen=True)
class Reduction:
    """What is asked for: the best classes, boxes, or neither.

    Args:
        top: number of classes.
        boxes: rules by which boxes are kept.
    """

    top: int | None = None
    boxes: BoxOptions | None = None

    def of(self, graph: Graph) -> Graph:
        """The graph with the outputs that are asked for. Candidates are judged by all numbers, so
        this comes after the search. UsageError where it cannot be done."""
        if self.top is not None:
            return with_top(graph, self.top)
        return graph if self.boxes is None else with_boxes(graph, self.boxes)

    def prepared(self, imported: Imported) -> Imported:
        """The model with room for the new outputs: what the search finds names values as they
        stay. UsageError where it cannot be done, which is said before the search."""
        self.of(imported.graph)
        if self.top is None and self.boxes is None:
            return imported
        graph = with_room(imported.graph)
        return replace(imported, graph=graph, is_classifier=self.top is not None)

    def settled(
        self, imported: Imported, samples: Samples | None, threads: int
    ) -> tuple[Reduction, tuple[str, ...]]:
        """This with the layout of the boxes that the model gives, and a remark that names it.

        Raises UsageError where its results for some inputs are no boxes and scores.
        """
        if self.boxes is None:
            return self, ()
        graph = imported.graph
        given = synthetic(graph, EXAMPLES) if samples is None else samples
        reference = Reference(graph, threads, imported.origin)
        try:
            examples = [given[index] for index in range(min(EXAMPLES, len(given)))]
            outputs = [case.right for case in reference.cases(examples)]
        finally:
            reference.close()
        layout = layout_of(self.boxes.layout, shapes_of(graph), described(graph), outputs)
        boxes = replace(self.boxes, layout=layout.name)
        return Reduction(boxes=boxes), (f"boxes are read as {layout.name} has them: {layout.what}",)
