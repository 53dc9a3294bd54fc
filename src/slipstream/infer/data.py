"""Loading of samples from folders, files, functions and iterables."""

# NumPy's stubs leave the types of what its methods return open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from slipstream.errors import UsageError, reason_of
from slipstream.infer.graph.graph import Array, Graph
from slipstream.infer.images.folders import read_folder
from slipstream.infer.images.reader import ImageOptions
from slipstream.infer.importers import FACTORY
from slipstream.infer.importers.user_errors import called
from slipstream.infer.samples import Batches, Item
from slipstream.user_modules import import_user_object

# Greatest number of items that are read from a loader, and of their bytes: all stay in memory.
# Chosen by hand, not measured.
MOST_ITEMS = 10_000
MOST_BYTES = 2**30
LABELS = ("label", "labels")


def load_data(source: Any, graph: Graph, images: ImageOptions | None = None) -> Batches:
    """Return the samples that a source contains, as arrays for the inputs of a graph.

    If a folder of images has sub-folders, the images in each sub-folder have one label. The label
    is the sub-folder's name if all names are numbers, otherwise the sub-folder's position in
    alphabetical order. An item of an iterable is either the inputs or a pair (inputs, label). The
    inputs are an array, or a dictionary of arrays by input name. In .npz files and dictionaries,
    the label has the name "label" or "labels".

    Args:
        source: Folder of images; folder of .npy or .npz files with one sample each; .npz file whose
            arrays have one sample per row; iterable; function without arguments that returns an
            iterable; or the name of an iterable or of such a function. The name of an iterable or
            function is "package.module:loader" or "path.py:loader".
        graph: Graph with fixed shapes. Items may have the graph's batch dimension or lack it.
        images: Options for reading images (default `ImageOptions()`).

    Raises UsageError if there is no sample, an item does not suit the graph, or the loader raises.
    """
    if isinstance(source, (str, Path)) and not FACTORY.fullmatch(str(source)):
        return _of_path(Path(source), graph, images or ImageOptions())
    origin = source if isinstance(source, str) else f"the {type(source).__name__}"
    if isinstance(source, str):
        source = import_user_object(source)
    if callable(source) and not isinstance(source, Iterable):
        source = called(f"the loader {origin}", source)
    if not isinstance(source, Iterable):
        raise UsageError(
            f"{origin}: the data is a {type(source).__name__}; allowed: an iterable of samples"
        )
    iterable = cast("Iterable[Any]", source)
    items = called(f"the data of {origin}", lambda: _items(iterable, graph, origin))
    return Batches(len(items), lambda index: items[index], graph, origin)


def _of_path(path: Path, graph: Graph, options: ImageOptions) -> Batches:
    if path.suffix == ".npz" and path.is_file():
        return _of_rows(path, graph)
    if not path.is_dir():
        raise UsageError(
            f"{path} is no data; allowed: a folder of images, .npy or .npz files, an .npz file,"
            " package.module:loader or path.py:loader"
        )
    files = sorted([*path.glob("*.npy"), *path.glob("*.npz")])
    if files:
        return Batches(len(files), lambda index: _of_file(files[index], graph), graph, str(path))
    name = _only_input(graph, str(path))
    folder = read_folder(path, graph.inputs[name], options)

    def item(index: int) -> Item:
        array, label = folder(index)
        return {name: array}, label

    return Batches(len(folder), item, graph, str(path), folder.classes)


def _of_rows(path: Path, graph: Graph) -> Batches:
    arrays = _loaded(path)
    labels = next((arrays.pop(name) for name in LABELS if name in arrays), None)
    if labels is not None and (labels.ndim != 1 or labels.dtype.kind not in "iu"):
        raise UsageError(
            f"{path}: labels are {labels.dtype} {labels.shape}; allowed: integers (n,)"
        )
    counts = {len(array) for array in arrays.values() if array.ndim}
    if len(counts) != 1 or (labels is not None and len(labels) not in counts):
        named = arrays if labels is None else {**arrays, "labels": labels}
        sizes = ", ".join(f"{name} {array.shape}" for name, array in named.items())
        raise UsageError(f"{path}: the arrays have no common number of rows: {sizes or 'none'}")
    named = _named(arrays, graph, str(path))

    def item(index: int) -> Item:
        rows = {name: array[index] for name, array in named.items()}
        return rows, None if labels is None else int(labels[index])

    return Batches(counts.pop(), item, graph, str(path))


def _of_file(path: Path, graph: Graph) -> Item:
    return _item(_loaded(path), graph, str(path))


def _loaded(path: Path) -> dict[str, Array]:
    try:
        with path.open("rb") as file:
            content = np.load(file, allow_pickle=False)
            is_archive = isinstance(content, np.lib.npyio.NpzFile)
            return dict(content.items()) if is_archive else {"": content}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path}: NumPy cannot read it: {reason_of(error)}") from error


def _items(iterable: Iterable[Any], graph: Graph, origin: str) -> list[Item]:
    """Return the items of an iterable, as many as `MOST_ITEMS` and `MOST_BYTES` allow."""
    items: list[Item] = []
    size = 0
    for value in itertools.islice(iterable, MOST_ITEMS):
        item = _item(value, graph, origin)
        size += sum(array.nbytes for array in item[0].values())
        if items and size > MOST_BYTES:
            break
        items.append(item)
    return items


def _item(value: Any, graph: Graph, origin: str) -> Item:
    label: Any = None
    if isinstance(value, (tuple, list)) and len(value) == 2:
        value, label = value
    if not isinstance(value, Mapping):
        return _named({"": _array(value)}, graph, origin), _label(label)
    arrays = {str(name): _array(array) for name, array in value.items()}
    for name in LABELS:
        if name in arrays and name not in graph.inputs:
            label = arrays.pop(name)
    return _named(arrays, graph, origin), _label(label)


def _array(value: Any) -> Array:
    return value if isinstance(value, np.ndarray) else np.asarray(value)


def _label(value: Any) -> int | None:
    if value is None:
        return None
    label = np.asarray(value)
    if label.size != 1 or label.dtype.kind not in "iu":
        raise UsageError(f"a label is {label.dtype} {label.shape}; allowed: one whole number")
    return int(label.item())


def _named(arrays: Mapping[str, Array], graph: Graph, origin: str) -> dict[str, Array]:
    """Return the arrays by input name.

    If there is one array and the graph has one input, the name of the array does not matter.
    """
    if len(arrays) == 1 and len(graph.inputs) == 1:
        return dict(zip(graph.inputs, arrays.values(), strict=True))
    if "" in arrays:
        _only_input(graph, origin)
    return dict(arrays)


def _only_input(graph: Graph, origin: str) -> str:
    if len(graph.inputs) != 1:
        raise UsageError(
            f"{origin}: the model has the inputs {', '.join(graph.inputs)}; give .npz files or"
            " dictionaries that name them"
        )
    return next(iter(graph.inputs))
