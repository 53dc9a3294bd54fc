"""Importer of Caffe: a .prototxt file describes the network, a .caffemodel file has the weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Graph
from slipstream.infer.importers.builder import Builder, refuse_all
from slipstream.infer.importers.caffe import arrange, boxes, pointwise, products, windows
from slipstream.infer.importers.caffe.network import CaffeLayer, CaffeNetwork, read_network

Convert = Callable[[Builder, CaffeLayer, list[str]], "str | list[str]"]

LAYERS: dict[str, Convert] = {
    **products.LAYERS,
    **windows.LAYERS,
    **pointwise.LAYERS,
    **arrange.LAYERS,
    **boxes.LAYERS,
}


@np.errstate(all="ignore")  # numbers in files may be infinite or NaN
def read_caffe(
    prototxt: Path, caffemodel: Path, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Graph, tuple[str, ...]]:
    """Return the graph of a network at test time, and notes about the layers that are left out.

    Args:
        prototxt: Network file with `layer` entries, or `layers` in the older form.
        caffemodel: Weight file. A layer gets the weights that the file stores under the layer's
            name.
        shapes: Input shapes that replace the shapes in the prototxt.

    Raises:
        UsageError: If a file cannot be read, if layers are not supported (the message lists all of
            them), or if weights or shapes do not fit.
    """
    network = read_network(prototxt, caffemodel)
    kinds = [windows.kind(layer) for layer in network.layers]
    refuse_all(str(prototxt), kinds, list(LAYERS))
    network = _with_detections(network)
    builder = Builder(network.name)
    values = _inputs(builder, network, shapes, str(prototxt))
    for layer in network.layers:
        _import(builder, layer, values)
    read = {bottom for layer in network.layers for bottom in layer.bottoms}
    outputs = _unread(network) or sorted(values.keys() - read)
    return builder.finish({name: values[name] for name in outputs}), tuple(network.notes)


def _with_detections(network: CaffeNetwork) -> CaffeNetwork:
    """Replace each detection layer by a layer that returns all boxes and scores."""
    layers = list(network.layers)
    notes = list(network.notes)
    for at, layer in enumerate(layers):
        if layer.type == "DetectionOutput":
            layers[at], note = boxes.detections(layer)
            notes.append(note)
    return replace(network, layers=layers, notes=notes)


def _inputs(
    builder: Builder, network: CaffeNetwork, shapes: Mapping[str, tuple[int, ...]], where: str
) -> dict[str, str]:
    unknown = sorted(shapes.keys() - network.inputs.keys())
    if unknown:
        raise UsageError(
            f"{where}: no input {', '.join(unknown)}; it has {', '.join(network.inputs)}"
        )
    for name, declared in network.inputs.items():
        shape = shapes.get(name, declared)
        if not shape:
            raise UsageError(
                f"{where}: it does not give the shape of {name!r}; add --shape {name}=1,3,224,224"
            )
        builder.input(name, shape)
    return {name: name for name in network.inputs}


def _import(builder: Builder, layer: CaffeLayer, blobs: dict[str, str]) -> None:
    """Add a layer to the graph.

    Args:
        blobs: Names of graph values, by the names of Caffe's blobs. The layer's results are added
            to `blobs`; a result may replace the earlier value of a blob.
    """
    builder.where = layer.title
    missing = [name for name in layer.bottoms if name not in blobs]
    if missing or not layer.tops:
        what = f"no layer computes its input {', '.join(missing)}" if missing else "it has no top"
        raise UsageError(f"{layer.title}: {what}")
    names = LAYERS[layer.type](builder, layer, [blobs[name] for name in layer.bottoms])
    results = [names] if isinstance(names, str) else names
    if len(results) != len(layer.tops):
        raise UsageError(f"{layer.title}: it has {len(layer.tops)} tops; allowed: {len(results)}")
    blobs.update(zip(layer.tops, results, strict=True))


def _unread(network: CaffeNetwork) -> list[str]:
    """Return the blobs that no layer reads after they are computed, in the order of the layers."""
    waiting: dict[str, None] = {}
    for layer in network.layers:
        for name in layer.bottoms:
            waiting.pop(name, None)
        waiting.update(dict.fromkeys(layer.tops))
    return list(waiting)
