"""Models in two files or in formats of their own: Caffe, MXNet, Kaldi."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from pathlib import Path

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Graph
from slipstream.infer.importers.caffe import read_caffe
from slipstream.infer.importers.kaldi import read_kaldi
from slipstream.infer.importers.mxnet import read_mxnet
from slipstream.infer.importers.shapes import Shapes

Read = tuple[Graph, tuple[str, ...]]
MXNET = "-symbol.json"


def read_by_file(path: Path, weights: Path | None, shapes: Shapes) -> Read | None:
    """The graph, its shapes fixed, and notes for people; None where the name is of another kind.

    Args:
        path: net.prototxt; net-symbol.json; final.mdl, .raw or .nnet3.
        weights: net.caffemodel, net-0000.params; default the one of that name beside it, of
            several .params files the last.
        shapes: Input shapes, by name.

    Raises UsageError where a file cannot be read or imported.
    """
    for ending, read in FORMATS.items():
        if path.name.endswith(ending):
            return read(path, weights, shapes)
    return None


def _caffe(path: Path, weights: Path | None, shapes: Shapes) -> Read:
    return read_caffe(path, weights or _found(path, [path.with_suffix(".caffemodel")]), shapes)


def _mxnet(path: Path, weights: Path | None, shapes: Shapes) -> Read:
    stem = path.name.removesuffix(MXNET)
    if weights is not None:
        return read_mxnet(path, weights, shapes)
    several = sorted(path.parent.glob(f"{glob.escape(stem)}-[0-9]*.params"), reverse=True)
    chosen = _found(path, several or [path.with_name(f"{stem}-0000.params")])
    graph, notes = read_mxnet(path, chosen, shapes)
    if len(several) > 1:
        notes = (f"of {len(several)} .params files {chosen.name} was read", *notes)
    return graph, notes


def _kaldi(path: Path, weights: Path | None, shapes: Shapes) -> Read:
    if weights is not None:
        raise UsageError(f"weights are {weights}, but {path} has its own")
    return read_kaldi(path, shapes)


def _found(path: Path, candidates: list[Path]) -> Path:
    """Return the first file that exists; the UsageError lists the paths tried."""
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise UsageError(
        f"{path}: its weights are not at {', '.join(map(str, candidates))}; say --weights FILE"
    )


FORMATS: Mapping[str, Callable[[Path, Path | None, Shapes], Read]] = {
    ".prototxt": _caffe,
    MXNET: _mxnet,
    ".mdl": _kaldi,
    ".nnet3": _kaldi,
    ".raw": _kaldi,
}
