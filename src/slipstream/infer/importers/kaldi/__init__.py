"""Importer of Kaldi's nnet3 models: files such as final.mdl or final.raw, text or binary."""

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
PROBE = 1 << 20  # frames, more than the context of any network


@np.errstate(all="ignore")  # numbers in files may be infinite or NaN
def read_kaldi(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Graph, tuple[str, ...]]:
    """Return the graph of a network, and notes for the user.

    Inputs of the graph have the shape (1, frames, dim). An output frame depends on input frames
    before and after its own time, so the output has fewer frames than the input. An input that is
    the same at all times, such as a speaker vector, has one frame. Cycles of nodes, as in LSTMs,
    are unrolled frame by frame.

    Args:
        path: File of an nnet3 model.
        shapes: Input shapes, by name. The output begins at time 0. The input begins earlier, with
            the first frame on which the output at time 0 depends.

    Raises:
        UsageError: If the file cannot be read, if components are not supported (the message lists
            all of them), or if the network or the shapes do not fit.
    """
    model = read_model(path, frozenset(KINDS))
    nodes = parse_nodes(model.lines, str(path))
    outputs, notes = _outputs(nodes, model, str(path))
    edges = needed_nodes(nodes, outputs)
    used_nodes = [nodes[name] for name in edges]
    _check_components(used_nodes, model, str(path))
    inputs = _inputs(used_nodes, shapes, str(path))
    left, right = _context(nodes, edges, model, inputs)
    begins = {name: FrameSpan(-left, shape[1] - left) for name, shape in inputs.items()}
    fixed = _fixed_inputs(used_nodes)
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
        f"an output frame depends on {left} input frames before and {right} after its time:"
        f" {max(shape[1] for shape in inputs.values())} input frames give {count} output frames"
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
            frames.add_cycle(group)
        else:
            values[name] = frames.add(name)
    return {name: values[name] for name in outputs}


def _outputs(
    nodes: Mapping[str, KaldiNode], model: KaldiModel, where: str
) -> tuple[list[str], list[str]]:
    """Return the output nodes, and notes.

    If one output is named "output", the other outputs are only for training.
    """
    outputs = [name for name, node in nodes.items() if node.kind == "output-node"]
    if not outputs:
        raise UsageError(f"{where}: the network has no output-node")
    notes: list[str] = []
    if OUTPUT in outputs and len(outputs) > 1:
        others = [name for name in outputs if name != OUTPUT]
        notes.append(f"outputs for training were left out: {', '.join(others)}")
        outputs = [OUTPUT]
    if model.num_priors:
        notes.append(
            "the log priors of the classes are not subtracted from the output, unlike in Kaldi's"
            " decoders"
        )
    return outputs, notes


def _check_components(nodes: list[KaldiNode], model: KaldiModel, where: str) -> None:
    names = [node.component for node in nodes if node.kind == "component-node"]
    missing = sorted({name for name in names if name not in model.components})
    if missing:
        raise UsageError(f"{where}: these components are missing: {', '.join(missing)}")
    kinds = [item.kind for name in names for item in _with_parts(model.components[name])]
    refuse_all(where, kinds, list(KINDS))


def _with_parts(component: Component) -> list[Component]:
    if component.kind != COMPOSITE:
        return [component]
    return [item for part in component.parts for item in _with_parts(part)]


def _fixed_inputs(nodes: list[KaldiNode]) -> dict[str, int]:
    """Return the fixed time of each input that has one, by the name of the input.

    An input has a fixed time if all nodes that read it read the same frame at all times.
    """
    times: dict[str, set[int | None]] = {}
    for node in nodes:
        for name, time in _times(node.source):
            times.setdefault(name, set()).add(time)
    fixed: dict[str, int] = {}
    for node in nodes:
        seen = times.get(node.name, set())
        (only,) = seen if len(seen) == 1 else (None,)
        if node.kind == "input-node" and only is not None:
            fixed[node.name] = only
    return fixed


def _times(source: Descriptor | None) -> list[tuple[str, int | None]]:
    """Return a pair for each node that a descriptor reads: the node's name and a fixed time.

    The time is None if the frame that the descriptor reads depends on the current time.
    """
    if source is None:
        return []
    if isinstance(source, (At, Reads)):
        time = source.time if isinstance(source, At) else None
        return [(name, time) for name in read_by(source)]
    return [pair for part in sources_of(source) for pair in _times(part)]


def _inputs(
    nodes: list[KaldiNode], shapes: Mapping[str, tuple[int, ...]], where: str
) -> dict[str, tuple[int, ...]]:
    inputs = {node.name: node.dim for node in nodes if node.kind == "input-node"}
    fixed = _fixed_inputs(nodes)
    unknown = sorted(shapes.keys() - inputs.keys())
    if unknown:
        raise UsageError(f"{where}: no input {', '.join(unknown)}; it has {', '.join(inputs)}")
    result: dict[str, tuple[int, ...]] = {}
    for name, dim in inputs.items():
        shape = shapes.get(name, (1, 1, dim) if name in fixed else ())
        if len(shape) != 3 or shape[0] != 1 or shape[2] != dim or (name in fixed and shape[1] != 1):
            length = 1 if name in fixed else 150
            raise UsageError(
                f"{where}: the shape of {name!r} is {shape or 'unknown'}; allowed:"
                f" (1, {'1' if name in fixed else 'frames'}, {dim}); add --shape"
                f" {name}=1,{length},{dim}"
            )
        result[name] = shape
    if not result:
        raise UsageError(f"{where}: its output depends on no input")
    return result


def _context(
    nodes: Mapping[str, KaldiNode],
    edges: Mapping[str, list[str]],
    model: KaldiModel,
    inputs: Mapping[str, tuple[int, ...]],
) -> tuple[int, int]:
    """Return how many earlier and how many later input frames an output frame depends on.

    Frames that only optional parts of descriptors read are not counted.
    """
    fixed = _fixed_inputs([nodes[name] for name in edges])
    wide = {name: ALWAYS if name in fixed else FrameSpan(-PROBE, PROBE) for name in inputs}
    spans = spans_of(nodes, edges, model.components, wide)
    ends = [spans[name] for name in edges if nodes[name].kind == "output-node"]
    if any(span == ALWAYS for span in ends):
        return 0, 0
    return max(span.begin for span in ends) + PROBE, PROBE - min(span.end for span in ends)
