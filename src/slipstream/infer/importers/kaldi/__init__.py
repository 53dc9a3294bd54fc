"""Kaldi's nnet3: final.mdl, or final.raw, text or binary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Graph
from slipstream.infer.importers.builder import Builder, refuse_all
from slipstream.infer.importers.kaldi.components import KINDS
from slipstream.infer.importers.kaldi.frames import Frames, needed_nodes, spans_of
from slipstream.infer.importers.kaldi.model import COMPOSITE, Component, KaldiModel, read_model
from slipstream.infer.importers.kaldi.nodes import (
    At,
    Descriptor,
    KaldiNode,
    Reads,
    parse_nodes,
    read_by,
    sources_of,
)
from slipstream.infer.importers.kaldi.order import ALWAYS, FrameSpan, groups

OUTPUT = "output"
PROBE = 1 << 20  # frames that no network's context is as wide as


@np.errstate(all="ignore")  # numbers of files may be infinite, or none
def read_kaldi(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Graph, tuple[str, ...]]:
    """The graph of a network, and notes for people.

    Inputs have the shape (1, frames, dim); the output has as many frames less as the network sees
    before and after one. An input that is the same at all times, as speaker vectors are, has one.
    Circles of nodes, as in LSTMs, are written out frame by frame.

    Args:
        path: of nnet3.
        shapes: of inputs, by name: the first frame that comes in is that much before time 0 as the
            network sees frames before one.

    Raises UsageError where the file cannot be read, for components that are not known (all by
    name), and for networks and shapes that do not suit.
    """
    model = read_model(path, frozenset(KINDS))
    nodes = parse_nodes(model.lines, str(path))
    outputs, notes = _outputs(nodes, model, str(path))
    edges = needed_nodes(nodes, outputs)
    used = [nodes[name] for name in edges]
    _check_components(used, model, str(path))
    inputs = _inputs(used, shapes, str(path))
    left, right = _context(nodes, edges, model, inputs)
    begins = {name: FrameSpan(-left, shape[1] - left) for name, shape in inputs.items()}
    fixed = _fixed_inputs(used)
    begins.update({name: FrameSpan(time, time + inputs[name][1]) for name, time in fixed.items()})
    spans = spans_of(nodes, edges, model.components, begins)
    builder = Builder(path.stem)
    frames = Frames(builder, nodes, model.components, spans)
    for name, shape in inputs.items():
        frames.input(name, builder.input(name, shape))
    values = _computed(frames, nodes, edges, outputs)
    graph = builder.finish(values)
    count = builder.shape(values[outputs[0]])[1]
    notes.append(
        f"the network sees {left} frames before and {right} after one:"
        f" {max(shape[1] for shape in inputs.values())} frames in give {count} out"
    )
    return graph, tuple(notes)


def _computed(
    frames: Frames,
    nodes: Mapping[str, KaldiNode],
    edges: Mapping[str, list[str]],
    outputs: list[str],
) -> dict[str, str]:
    values: dict[str, str] = {}
    for group in groups(edges):
        (name, *others) = group
        if nodes[name].kind == "input-node":
            continue
        if others or name in edges[name]:
            frames.add_circle(group)
        else:
            values[name] = frames.add(name)
    return {name: values[name] for name in outputs}


def _outputs(
    nodes: Mapping[str, KaldiNode], model: KaldiModel, where: str
) -> tuple[list[str], list[str]]:
    """The node "output" alone where there is one: others serve for training."""
    found = [name for name, node in nodes.items() if node.kind == "output-node"]
    if not found:
        raise UsageError(f"{where}: the network has no output-node")
    notes: list[str] = []
    if OUTPUT in found and len(found) > 1:
        others = [name for name in found if name != OUTPUT]
        notes.append(f"outputs for training were left out: {', '.join(others)}")
        found = [OUTPUT]
    if model.num_priors:
        notes.append("the priors of the classes are not subtracted, as a decoder of Kaldi does")
    return found, notes


def _check_components(used: list[KaldiNode], model: KaldiModel, where: str) -> None:
    names = [node.component for node in used if node.kind == "component-node"]
    missing = sorted({name for name in names if name not in model.components})
    if missing:
        raise UsageError(f"{where}: it has no components {', '.join(missing)}")
    kinds = [item.kind for name in names for item in _with_parts(model.components[name])]
    refuse_all(where, kinds, list(KINDS))


def _with_parts(component: Component) -> list[Component]:
    if component.kind != COMPOSITE:
        return [component]
    return [item for part in component.parts for item in _with_parts(part)]


def _fixed_inputs(used: list[KaldiNode]) -> dict[str, int]:
    """Inputs that are read at one time only, and that time."""
    times: dict[str, set[int | None]] = {}
    for node in used:
        for name, time in _times(node.source):
            times.setdefault(name, set()).add(time)
    found: dict[str, int] = {}
    for node in used:
        seen = times.get(node.name, set())
        (only,) = seen if len(seen) == 1 else (None,)
        if node.kind == "input-node" and only is not None:
            found[node.name] = only
    return found


def _times(source: Descriptor | None) -> list[tuple[str, int | None]]:
    """Names that a descriptor reads; with a time where that is always the same."""
    if source is None:
        return []
    if isinstance(source, (At, Reads)):
        time = source.time if isinstance(source, At) else None
        return [(name, time) for name in read_by(source)]
    return [pair for part in sources_of(source) for pair in _times(part)]


def _inputs(
    used: list[KaldiNode], shapes: Mapping[str, tuple[int, ...]], where: str
) -> dict[str, tuple[int, ...]]:
    inputs = {node.name: node.dim for node in used if node.kind == "input-node"}
    fixed = _fixed_inputs(used)
    strange = sorted(shapes.keys() - inputs.keys())
    if strange:
        raise UsageError(f"{where}: no input {', '.join(strange)}; it has {', '.join(inputs)}")
    found: dict[str, tuple[int, ...]] = {}
    for name, dim in inputs.items():
        shape = shapes.get(name, (1, 1, dim) if name in fixed else ())
        if len(shape) != 3 or shape[0] != 1 or shape[2] != dim or (name in fixed and shape[1] != 1):
            length = 1 if name in fixed else 150
            raise UsageError(
                f"{where}: the shape of {name!r} is {shape or 'not known'}; it must be"
                f" (1, {'1' if name in fixed else 'frames'}, {dim}):"
                f" say --shape {name}=1,{length},{dim}"
            )
        found[name] = shape
    if not found:
        raise UsageError(f"{where}: its output depends on no input")
    return found


def _context(
    nodes: Mapping[str, KaldiNode],
    edges: Mapping[str, list[str]],
    model: KaldiModel,
    inputs: Mapping[str, tuple[int, ...]],
) -> tuple[int, int]:
    """How many frames before and after one it depends on, where nothing else is defined."""
    fixed = _fixed_inputs([nodes[name] for name in edges])
    wide = {name: ALWAYS if name in fixed else FrameSpan(-PROBE, PROBE) for name in inputs}
    spans = spans_of(nodes, edges, model.components, wide)
    ends = [spans[name] for name in edges if nodes[name].kind == "output-node"]
    if any(span == ALWAYS for span in ends):
        return 0, 0
    return max(span.begin for span in ends) + PROBE, PROBE - min(span.end for span in ends)
