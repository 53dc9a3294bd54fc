"""Models in two files or in formats of their own: Caffe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from slipstream.errors import UsageError
from slipstream.infer.graph import Graph
from slipstream.infer.importers.caffe import read_caffe
from slipstream.infer.importers.shapes import Shapes

Read = tuple[Graph, tuple[str, ...]]


def read_by_file(path: Path, weights: Path | None, shapes: Shapes) -> Read | None:
    """The graph, its shapes fixed, and notes for people; None where the name is of another kind.

    Args:
        path: net.prototxt.
        weights: net.caffemodel; default the file of the same stem beside it.
        shapes: of inputs, by name.

    Raises UsageError where a file cannot be read or imported.
    """
    for ending, read in FORMATS.items():
        if path.name.endswith(ending):
            return read(path, weights, shapes)
    return None


def _caffe(path: Path, weights: Path | None, shapes: Shapes) -> Read:
    return read_caffe(path, weights or _found(path, [path.with_suffix(".caffemodel")]), shapes)


def _found(path: Path, candidates: list[Path]) -> Path:
    """The first that is there; UsageError that says where it was looked for."""
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise UsageError(
        f"{path}: its weights are not at {', '.join(map(str, candidates))}; say --weights FILE"
    )


FORMATS: Mapping[str, Callable[[Path, Path | None, Shapes], Read]] = {".prototxt": _caffe}
