"""Choice of the reader of a Caffe, MXNet or Kaldi model by the name of the model file."""

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
    """Read a model of Caffe, MXNet or Kaldi; return None if the file name has another ending.

    Args:
        path: Model file: .prototxt, -symbol.json, .mdl, .raw or .nnet3.
        weights: File of the weights: .caffemodel or .params (default: the file of the same name
            beside the model). If several .params files have the model's name, the default is the
            last of them in alphabetical order.
        shapes: Input shapes, by name.

    Returns:
        The graph, with fixed shapes, and notes for the user.

    Raises:
        UsageError: If a file cannot be read or imported.
    """
    for ending, read in FORMATS.items():
        if path.name.endswith(ending):
            return read(path, weights, shapes)
    return None


def _caffe(path: Path, weights: Path | None, shapes: Shapes) -> Read:
    return read_caffe(path, weights or _first_file(path, [path.with_suffix(".caffemodel")]), shapes)


def _mxnet(path: Path, weights: Path | None, shapes: Shapes) -> Read:
    stem = path.name.removesuffix(MXNET)
    if weights is not None:
        return read_mxnet(path, weights, shapes)
    params_files = sorted(path.parent.glob(f"{glob.escape(stem)}-[0-9]*.params"), reverse=True)
    chosen = _first_file(path, params_files or [path.with_name(f"{stem}-0000.params")])
    graph, notes = read_mxnet(path, chosen, shapes)
    if len(params_files) > 1:
        notes = (f"{chosen.name} was read, the last of {len(params_files)} .params files", *notes)
    return graph, notes


def _kaldi(path: Path, weights: Path | None, shapes: Shapes) -> Read:
    if weights is not None:
        raise UsageError(f"a weight file is given ({weights}), but {path} contains its weights")
    return read_kaldi(path, shapes)


def _first_file(path: Path, candidates: list[Path]) -> Path:
    """Return the first of several paths at which a file exists.

    Raises:
        UsageError: If no file exists; the message lists the paths that were tried.
    """
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise UsageError(
        f"{path}: there is no weight file {' or '.join(map(str, candidates))}; name it with"
        " --weights FILE"
    )


FORMATS: Mapping[str, Callable[[Path, Path | None, Shapes], Read]] = {
    ".prototxt": _caffe,
    MXNET: _mxnet,
    ".mdl": _kaldi,
    ".nnet3": _kaldi,
    ".raw": _kaldi,
}
