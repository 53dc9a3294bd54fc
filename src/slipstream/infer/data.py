"""Sample inputs: to calibrate bytes with, and to judge candidates by."""

# NumPy's stubs leave the types of what its methods return open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array, Graph, Value
from slipstream.infer.images.folders import read_folder
from slipstream.infer.images.reader import ImageOptions
from slipstream.infer.importers import FACTORY
from slipstream.infer.importers.user_errors import called
from slipstream.user_modules import import_user_object

# Most items that are taken from a loader, and most bytes, because they stay in memory. Chosen by
# hand, not measured.
MOST_ITEMS = 10_000
MOST_BYTES = 2**30
LABELS = ("label", "labels")

Item: TypeAlias = "tuple[Mapping[str, Array], int | None]"


@dataclass(frozen=True)
class Sample:
    """The inputs of one run of the model.

    Args:
        inputs: All inputs by name, in their dtypes and shapes, C-contiguous.
        labels: Right classes, int64 of shape (batch,); None if they are unknown.
    """

    inputs: dict[str, Array]
    labels: Array | None = None


class Samples(Protocol):
    """Samples by index. Each access may read from a file, and nothing stays in memory."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Sample: ...


def load_data(source: Any, graph: Graph, images: ImageOptions | None = None) -> Batches:
    """Return the samples of a source for the inputs of a graph.

    Args:
        source: Folder of images, whose sub-folders, if any, are the labels (the names if they are
            numbers, else the positions in alphabetical order); folder of .npy or .npz files with
            one sample each; .npz file whose arrays have one sample per row; name of a function
            without arguments or of an iterable, "package.module:loader" or "path.py:loader"; or
            an iterable. Its items are arrays, dictionaries by input, or pairs of one of these and
            a label. In .npz files and dictionaries a label is called "label" or "labels".
        graph: Graph with fixed shapes. Items may have the batch dimension or lack it.
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


def synthetic(graph: Graph, count: int, example: Mapping[str, Array] | None = None) -> Samples:
    """Return samples of random numbers, which are the same for every call.

    Floats are normally distributed. Integers are in the range of the tables that they index, or 0
    and 1. Such samples show only whether a candidate computes the same function.

    Args:
        graph: Graph whose inputs the samples fill.
        count: Number of samples.
        example: Inputs of the first sample (default: random, too).
    """

    def make(index: int) -> Sample:
        if index == 0 and example is not None:
            return Sample({name: np.asarray(array, order="C") for name, array in example.items()})
        random = np.random.default_rng(index)
        return Sample({name: _random(random, graph, name) for name in graph.inputs})

    return _FunctionSamples(count, make)


@dataclass(frozen=True)
class _FunctionSamples:
    count: int
    make: Callable[[int], Sample]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Sample:
        return self.make(index)


def _random(random: np.random.Generator, graph: Graph, name: str) -> Array:
    value = graph.inputs[name]
    shape, dtype = value.fixed or (), value.dtype or np.dtype(np.float32)
    if dtype.kind == "f":
        return random.standard_normal(shape).astype(dtype)
    if dtype == np.uint8:
        return random.integers(0, 256, shape, dtype)
    return random.integers(0, _num_entries(graph, name), shape).astype(dtype)


def _num_entries(graph: Graph, name: str) -> int:
    """Return the entries of the smallest table that the input indexes; 2 if it indexes none."""
    names, sizes = {name}, [2**31]
    for node in graph.nodes:
        if node.op in ("Cast", "Reshape", "Squeeze", "Unsqueeze") and node.inputs[0] in names:
            names.add(node.output)
        if node.op == "Gather" and node.inputs[1] in names:
            shape = graph.shape(node.inputs[0])
            sizes.append(shape[int(node.get("axis", 0))] if shape else 2)
    return min(sizes) if len(sizes) > 1 else 2


# ---- items become samples ----------------------------------------------------------------------


class Batches:
    """Samples of several items each, as many as the graph's batch size.

    Items that do not fill a sample are left out.

    Args:
        count: Number of items.
        item: Function that returns the item of an index.
        graph: Graph whose inputs the samples fill.
        origin: Source of the items, for error messages.
        classes: Names of the labels from 0 on (default none).

    Raises UsageError if the items do not fill one sample.
    """

    def __init__(
        self,
        count: int,
        item: Callable[[int], Item],
        graph: Graph,
        origin: str,
        classes: tuple[str, ...] = (),
    ) -> None:
        self.classes = classes
        self._item, self._graph, self._origin = item, graph, origin
        if count == 0:
            raise UsageError(f"{origin}: there is no sample")
        self._batch = 1 if self._is_whole(item(0)) else self._batch_size()
        self._count = count // self._batch
        if self._count == 0:
            raise UsageError(f"{origin}: {count} items do not fill a batch of {self._batch}")

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Sample:
        if not 0 <= index < self._count:
            raise IndexError(index)
        items = [
            self._item(number) for number in range(index * self._batch, (index + 1) * self._batch)
        ]
        inputs = {
            name: self._joined(name, value, [item[0] for item in items])
            for name, value in self._graph.inputs.items()
        }
        labels = [item[1] for item in items if item[1] is not None]
        return Sample(inputs, np.array(labels) if len(labels) == len(items) else None)

    def _batch_size(self) -> int:
        sizes = {(value.fixed or (1,))[0] for value in self._graph.inputs.values()}
        if len(sizes) != 1:
            raise UsageError(
                f"{self._origin}: the items have no batch dimension, and the first dimensions of"
                f" the inputs differ: {sorted(sizes)}; give items with the full shapes of the"
                " inputs"
            )
        return sizes.pop()

    def _is_whole(self, item: Item) -> bool:
        """Return whether an item has the batch dimension."""
        name, value = next(iter(self._graph.inputs.items()))
        array = item[0].get(name)
        return array is not None and array.shape == value.fixed

    def _joined(self, name: str, value: Value, items: Sequence[Mapping[str, Array]]) -> Array:
        missing = [item for item in items if name not in item]
        if missing:
            names = ", ".join(missing[0]) or "nothing"
            raise UsageError(f"{self._origin}: a sample has {names}, and lacks the input {name!r}")
        arrays = [item[name] for item in items]
        batch = arrays[0] if arrays[0].shape == value.fixed else np.stack(arrays)
        if batch.shape != value.fixed:
            raise UsageError(
                f"{self._origin}: the input {name!r} has the shape {value.fixed}, and a sample has"
                f" {arrays[0].shape}"
            )
        dtype = value.dtype or batch.dtype
        if dtype.kind != batch.dtype.kind and {dtype.kind, batch.dtype.kind} != {"i", "u"}:
            raise UsageError(
                f"{self._origin}: the input {name!r} is {dtype}, and a sample is {batch.dtype}"
            )
        return np.asarray(batch, dtype, order="C")


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
        raise UsageError(f"{path}: NumPy cannot read it: {error}") from error


def _items(iterable: Iterable[Any], graph: Graph, origin: str) -> list[Item]:
    """Return the items of an iterable, up to the limits."""
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
    """Return arrays by input; a single array belongs to a single input, whatever its name."""
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
