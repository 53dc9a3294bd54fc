"""Conversion of nnet3 nodes to graph values.

A node becomes one value of the graph, which contains all frames of the node. A node in a cycle
becomes one value per frame, and in addition one value that contains all these frames.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array
from slipstream.infer.importers.builder import Builder
from slipstream.infer.importers.kaldi.components import AFFINE, TDNN, Layers, output_dim, weights
from slipstream.infer.importers.kaldi.model import Component
from slipstream.infer.importers.kaldi.nodes import (
    Append,
    At,
    Const,
    Descriptor,
    Failover,
    KaldiNode,
    Offset,
    Optional,
    Reads,
    Round,
    ScaledTerm,
    Sum,
    parts_of,
    read_by,
    sources_of,
)
from slipstream.infer.importers.kaldi.order import ALWAYS, FrameSpan, groups, span_of

# Limits for damaged files and for the graph's size, chosen by hand.
MOST_STEPS = 50_000  # nodes times frames of a cycle
LARGEST_OFFSET = 10_000  # frames between a node's output and an input that it reads


def time_offsets(component: Component) -> list[int]:
    """Return the times of the frames that a component reads, relative to its output frame."""
    if component.kind != TDNN:
        return [0]
    offsets: list[int] = component.array("TimeOffsets").tolist()
    if not offsets or max(map(abs, offsets)) > LARGEST_OFFSET:
        raise UsageError(
            f"{component.title}: its time offsets are {offsets[:10]}; allowed: at least one, up to"
            f" {LARGEST_OFFSET}"
        )
    return offsets


def needed_nodes(nodes: Mapping[str, KaldiNode], outputs: list[str]) -> dict[str, list[str]]:
    """Return the nodes that the outputs need, each with the names of the nodes it reads."""
    edges: dict[str, list[str]] = {}
    waiting = list(outputs)
    while waiting:
        name = waiting.pop()
        if name not in edges:
            edges[name] = list(dict.fromkeys(read_by(nodes[name].source)))
            waiting += edges[name]
    return edges


def spans_of(
    nodes: Mapping[str, KaldiNode],
    edges: Mapping[str, list[str]],
    components: Mapping[str, Component],
    inputs: Mapping[str, FrameSpan],
) -> dict[str, FrameSpan]:
    """Return the span of frames in which each node is defined, by the node's name.

    Args:
        nodes: All nodes, by name.
        edges: Names of the nodes that each needed node reads (see `needed_nodes`).
        components: All components, by name.
        inputs: Span of frames of each input, by name.

    Raises:
        UsageError: If a node needs its own results, directly or by way of other nodes.
    """
    required = {name: list(read_by(nodes[name].source, required_only=True)) for name in edges}
    spans = dict(inputs)
    for group in groups(required):
        (name,) = group if len(group) == 1 else ("",)
        if not name or name in required[name]:
            raise UsageError(
                f"the nodes {', '.join(sorted(group)[:5])} depend on themselves without IfDefined,"
                " so they cannot be computed"
            )
        node = nodes[name]
        if node.source is None:
            continue
        span = span_of(node.source, spans, f"node {name}")
        if node.kind == "component-node" and span != ALWAYS:
            offsets = time_offsets(components[node.component])
            span = FrameSpan(span.begin - min(offsets), span.end - max(offsets))
        spans[name] = span
    return spans


class Frames:
    """A builder that adds the frames of nodes to a graph; values have the shape (1, frames, dim).

    A node that is defined at all times reads only values that never change, so it gets one frame.
    """

    def __init__(
        self,
        builder: Builder,
        nodes: Mapping[str, KaldiNode],
        components: Mapping[str, Component],
        spans: Mapping[str, FrameSpan],
    ) -> None:
        self._builder = builder
        self._layers = Layers(builder)
        self._nodes = nodes
        self._components = components
        self._spans = dict(spans)
        # Nodes in cycles that are defined at all times, but computed only for some frames.
        self._bounded: set[str] = set()
        self._whole: dict[str, str] = {}  # values with all frames of a node's span
        self._single: dict[str, dict[int, str]] = {}  # values with one frame, for nodes in cycles

    def input(self, name: str, value: str) -> None:
        """Set the name of the graph's value that has the frames of an input node."""
        self._whole[name] = value

    def add(self, name: str) -> str:
        """Add the frames of a node to the graph, and return the name of the value with the frames.

        The node must not be in a cycle.
        """
        span = self._spans[name]
        if span == ALWAYS:
            self._check_constant(name)
            span = FrameSpan(0, 1)
        if span.is_empty:
            raise UsageError(f"node {name}: the input has too few frames for one output frame")
        self._whole[name] = self._node(name, span)
        return self._whole[name]

    def add_cycle(self, names: list[str]) -> None:
        """Add the nodes of a cycle frame by frame, because they read one another's frames."""
        self._check_cycle(names)
        step = self._direction(names)
        names = self._same_frame_order(names)
        begin, end = self._bound(names)
        spans = [self._spans[name] for name in names]
        split = {name: self._split(name, set(names)) for name in names}
        self._single.update({name: {} for name in names})
        for time in range(begin, end) if step < 0 else range(end - 1, begin - 1, -1):
            for name, span in zip(names, spans, strict=True):
                if span.begin <= time < span.end:
                    self._single[name][time] = split[name](time)
        for name in names:
            singles = [self._single[name][time] for time in sorted(self._single[name])]
            self._builder.where = name
            if len(singles) > 1:
                self._whole[name] = self._builder.add("Concat", *singles, axis=1)
            elif singles:
                self._whole[name] = singles[0]

    def _bound(self, names: list[str]) -> tuple[int, int]:
        """Return the first frame of a cycle, and the frame after the cycle's last frame.

        The spans of the cycle's nodes that are defined at all times are reduced to these frames.
        """
        finite = [self._spans[name] for name in names if self._spans[name] != ALWAYS]
        begin = min((span.begin for span in finite), default=0)
        end = max((span.end for span in finite), default=0)
        if not finite or (end - begin) * len(names) > MOST_STEPS:
            raise UsageError(
                f"the nodes {', '.join(names[:5])} read one another's frames, and"
                f" {end - begin} frames of {len(names)} nodes are too many to unroll; allowed:"
                f" {MOST_STEPS} in all; choose a shape with fewer frames"
            )
        always = [name for name in names if self._spans[name] == ALWAYS]
        self._bounded.update(always)
        self._spans.update({name: FrameSpan(begin, end) for name in always})
        return begin, end

    # ---- nodes -----------------------------------------------------------------------------

    def _node(self, name: str, span: FrameSpan) -> str:
        node = self._nodes[name]
        assert node.source is not None
        if node.kind == "component-node":
            return self._component(self._components[node.component], node.source, span)
        window = self._window(node.source, span)
        if node.kind == "dim-range-node":
            self._builder.where = name
            if not 0 <= node.offset < node.offset + node.dim <= self._builder.shape(window)[2]:
                raise UsageError(
                    f"node {name}: it reads the dimensions {node.offset} to"
                    f" {node.offset + node.dim}, but its input has {self._builder.shape(window)[2]}"
                )
            return self._layers.cut(window, node.offset, node.offset + node.dim, 2)
        return window

    def _component(self, component: Component, source: Descriptor, span: FrameSpan) -> str:
        offsets = time_offsets(component)
        if offsets == [0]:
            return self._layers.apply(component, self._window(source, span))
        wide = FrameSpan(span.begin + min(offsets), span.end + max(offsets))
        window = self._window(source, wide)
        self._builder.where = component.title
        length = span.end - span.begin
        parts = [
            self._layers.cut(window, offset - min(offsets), offset - min(offsets) + length, 1)
            for offset in offsets
        ]
        joined = parts[0] if len(parts) == 1 else self._builder.add("Concat", *parts, axis=2)
        return self._layers.apply(component, joined)

    def _split(self, name: str, cycle: set[str]) -> Callable[[int], str]:
        """Return a function that computes one frame of a node in a cycle.

        If the node multiplies by a matrix, the product with inputs from outside the cycle is
        computed for all frames at once.
        """
        node, span = self._nodes[name], self._spans[name]

        def whole_node(time: int) -> str:
            return self._node(name, FrameSpan(time, time + 1))

        component = self._components.get(node.component)
        if component is None or not isinstance(node.source, Append):
            return whole_node
        parts = node.source.parts
        in_cycle = [bool(cycle.intersection(read_by(part))) for part in parts]
        if component.kind not in (*AFFINE, "LinearComponent") or all(in_cycle) or span.is_empty:
            return whole_node
        dims = np.cumsum([0, *(self._dim(part) for part in parts)])
        matrix, bias = weights(component)
        if matrix.shape[1] != dims[-1]:
            return whole_node
        columns = np.repeat(in_cycle, np.diff(dims))
        outer = Component(
            f"{component.name}.outer",
            AFFINE[0],
            {"LinearParams": matrix[:, ~columns], "BiasParams": bias},
        )
        inner = Component(
            f"{component.name}.inner", "LinearComponent", {"Params": matrix[:, columns]}
        )
        pairs = list(zip(parts, in_cycle, strict=True))
        outside_cycle = Append(tuple(part for part, inside in pairs if not inside))
        inside_cycle = Append(tuple(part for part, inside in pairs if inside))
        batch = self._component(outer, outside_cycle, span)

        def split_node(time: int) -> str:
            step = self._component(inner, inside_cycle, FrameSpan(time, time + 1))
            self._builder.where = name
            position = time - span.begin
            return self._builder.add(
                "Add", step, self._layers.cut(batch, position, position + 1, 1)
            )

        return split_node

    # ---- descriptors -----------------------------------------------------------------------

    def _window(self, descriptor: Descriptor, span: FrameSpan) -> str:
        """Return the name of a value with a descriptor's frames in a span.

        The descriptor must be defined at every time in the span.
        """
        match descriptor:
            case Reads(node):
                return self._read(node, span)
            case Offset(source, frames):
                return self._window(source, span.moved(frames))
            case Append(parts):
                windows = [self._window(part, span) for part in parts]
                if len(windows) == 1:
                    return windows[0]
                return self._builder.add("Concat", *windows, axis=2)
            case At(source, time):
                return self._stretched(self._window(source, FrameSpan(time, time + 1)), span)
            case Round(source, modulus):
                return self._rounded(source, modulus, span)
            case Optional(source):
                return self._padded(source, span)
            case Failover(first, second):
                return self._replaced(first, second, span)
            case ScaledTerm() | Const() | Sum():
                return self._arithmetic(descriptor, span)

    def _arithmetic(self, descriptor: ScaledTerm | Const | Sum, span: FrameSpan) -> str:
        match descriptor:
            case ScaledTerm(source, factor):
                window = self._window(source, span)
                return self._builder.add("Mul", window, self._builder.constant("scale", factor))
            case Const(value, dim):
                shape = (1, span.end - span.begin, dim)
                return self._builder.constant("const", np.full(shape, value, np.float32))
            case Sum(first, second):
                pair = self._window(first, span), self._window(second, span)
                return self._builder.add("Add", *pair)

    def _read(self, name: str, span: FrameSpan) -> str:
        if self._spans[name].both(span) != span:
            raise UsageError(
                f"node {name} is read before its first frame, which cannot be imported"
            )
        if name in self._single and name not in self._whole:
            return self._single[name][span.begin]
        all_frames = self._whole[name]
        if self._spans[name] == ALWAYS:
            return self._stretched(all_frames, span)
        begin = self._spans[name].begin
        return self._layers.cut(all_frames, span.begin - begin, span.end - begin, 1)

    def _stretched(self, x: str, span: FrameSpan) -> str:
        length = span.end - span.begin
        if length == 1:
            return x
        shape = np.asarray([1, length, self._builder.shape(x)[2]])
        return self._builder.add("Expand", x, self._builder.constant("shape", shape))

    def _rounded(self, source: Descriptor, modulus: int, span: FrameSpan) -> str:
        times: Array = np.arange(span.begin, span.end) // modulus * modulus
        window = self._window(source, FrameSpan(int(times[0]), int(times[-1]) + 1))
        positions = self._builder.constant("places", times - times[0])
        return self._builder.add("Gather", window, positions, axis=1)

    def _padded(self, source: Descriptor, span: FrameSpan) -> str:
        """Return the frames of a source in a span; a frame that the source lacks becomes zeros."""
        inside = span_of(source, self._spans, "").both(span)
        if inside != span and self._bounded.intersection(read_by(source)):
            raise UsageError(
                f"the nodes {', '.join(read_by(source))} are read before their first frame, which"
                " cannot be imported"
            )
        if inside.is_empty:
            shape = (1, span.end - span.begin, self._dim(source))
            return self._builder.constant("zeros", np.zeros(shape, np.float32))
        window = self._window(source, inside)
        if inside == span:
            return window
        pads = np.asarray([0, inside.begin - span.begin, 0, 0, span.end - inside.end, 0])
        return self._builder.add("Pad", window, self._builder.constant("pads", pads))

    def _replaced(self, first: Descriptor, second: Descriptor, span: FrameSpan) -> str:
        """Return frames of `first`, or of `second` at times at which `first` has no frame."""
        inside = span_of(first, self._spans, "").both(span)
        if inside.is_empty:
            return self._window(second, span)
        pieces = [(second, FrameSpan(span.begin, inside.begin)), (first, inside)]
        pieces.append((second, FrameSpan(inside.end, span.end)))
        windows = [self._window(part, piece) for part, piece in pieces if not piece.is_empty]
        return windows[0] if len(windows) == 1 else self._builder.add("Concat", *windows, axis=1)

    # ---- checks ----------------------------------------------------------------------------

    def _dim(self, descriptor: Descriptor) -> int:
        """Return the number of dimensions of a descriptor's frames, without computing a node."""
        match descriptor:
            case Reads(name):
                node = self._nodes[name]
                if node.kind == "component-node":
                    return output_dim(self._components[node.component])
                return node.dim
            case Const(_, dim):
                return dim
            case Append(parts):
                return sum(self._dim(part) for part in parts)
            case Sum(first, _) | Failover(first, _):
                return self._dim(first)
            case (
                Offset(source) | ScaledTerm(source) | Round(source) | At(source) | Optional(source)
            ):
                return self._dim(source)

    def _check_constant(self, name: str) -> None:
        moving = [other for other, _ in _offsets(self._nodes[name].source, 0)]
        if any(self._spans[other] != ALWAYS for other in moving):
            raise UsageError(
                f"node {name} reads only optional frames, so it has no first frame, which cannot be"
                " imported"
            )

    def _check_cycle(self, names: list[str]) -> None:
        for name in names:
            node = self._nodes[name]
            component = self._components.get(node.component)
            if component is not None and time_offsets(component) != [0]:
                raise UsageError(
                    f"{component.title} is in a cycle and reads several frames, which cannot be"
                    " imported"
                )
            for part in parts_of(node.source):
                if isinstance(part, (Round, At)) and set(names).intersection(read_by(part)):
                    raise UsageError(
                        f"node {name} rounds or replaces times of its own cycle, which cannot be"
                        " imported"
                    )

    def _direction(self, names: list[str]) -> int:
        """Return -1 if the nodes of a cycle read earlier frames, or 1 if they read later frames."""
        offsets = {
            offset
            for name in names
            for other, offset in _offsets(self._nodes[name].source, 0)
            if other in names and offset
        }
        if not offsets or min(offsets) < 0 < max(offsets):
            raise UsageError(
                f"the nodes {', '.join(names[:5])} read one another's frames at the offsets"
                f" {sorted(offsets)}; allowed: all negative, or all positive"
            )
        return -1 if min(offsets) < 0 else 1

    def _same_frame_order(self, names: list[str]) -> list[str]:
        edges = {
            name: [
                other
                for other, offset in _offsets(self._nodes[name].source, 0)
                if other in names and not offset
            ]
            for name in names
        }
        ordered = groups(edges)
        if len(ordered) != len(names) or any(name in edges[name] for name in names):
            raise UsageError(
                f"the nodes {', '.join(names[:5])} need one another's results of the same frame"
            )
        return [name for (name,) in ordered]


def _offsets(source: Descriptor | None, frames: int) -> list[tuple[str, int]]:
    """Return the nodes that a descriptor reads at an offset from the current time.

    Each pair has the name of a node, and the offset in frames.
    """
    if isinstance(source, Reads):
        return [(source.node, frames)]
    if source is None or isinstance(source, (At, Round)):
        return []
    later = frames + (source.frames if isinstance(source, Offset) else 0)
    return [pair for part in sources_of(source) for pair in _offsets(part, later)]
