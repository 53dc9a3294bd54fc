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
from slipstream.infer.importers import FACTORY, resolve
from slipstream.infer.importers.user_errors import called

MOST_ITEMS = 10_000  # of a loader: whoever has more is not waited for
MOST_BYTES = 2**30  # of a loader's items, which are all held in memory
LABELS = ("label", "labels")

Item: TypeAlias = "tuple[Mapping[str, Array], int | None]"


@dataclass(frozen=True)
class Sample:
    """What one run of the model takes.

    Args:
        inputs: every input by name, in its dtype and shape, C-contiguous.
        labels: the right classes, shape (batch,), int64; None where they are not known.
    """

    inputs: dict[str, Array]
    labels: Array | None = None


class Samples(Protocol):
    """Samples by number; reading one may take time, so none is held."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Sample: ...


def load_data(source: Any, graph: Graph, images: ImageOptions | None = None) -> Batches:
    """The samples that `source` has for the inputs of a graph.

    Args:
        source: a folder of images, whose sub-folders, if any, are the labels (by number where
            their names are numbers, else in alphabetical order); a folder of .npy or .npz files,
            one sample each; an .npz file, whose arrays have one sample per row; "package.module:
            loader", a function without arguments or an iterable; or an iterable itself. Its items
            are arrays, dictionaries by input, or tuples (either of these, label). In .npz files
            and dictionaries a label is called "label" or "labels".
        graph: shapes fixed. Items lack the batch dimension, or have it.
        images: how they are read, default as ImageNet's customs are.

    Raises UsageError where there is nothing, for items that do not suit the graph, and where the
    loader raises.
    """
    if isinstance(source, (str, Path)) and not FACTORY.fullmatch(str(source)):
        return _of_path(Path(source), graph, images or ImageOptions())
    origin = source if isinstance(source, str) else f"the {type(source).__name__}"
    if isinstance(source, str):
        source = resolve(source)
    if callable(source) and not isinstance(source, Iterable):
        source = called(f"the loader {origin}", source)
    if not isinstance(source, Iterable):
        raise UsageError(f"{origin}: the data is no iterable, but a {type(source).__name__}")
    iterable = cast("Iterable[Any]", source)
    items = called(f"the data of {origin}", lambda: _held(iterable, graph, origin))
    return Batches(len(items), lambda index: items[index], graph, origin)


def synthetic(graph: Graph, count: int, example: Mapping[str, Array] | None = None) -> Samples:
    """Samples of random numbers, the same each time: normal floats, integers that are in range of
    the tables that they index, else 0 and 1. They show whether a candidate computes the same, and
    no more. With an example, that is the first of them."""

    def make(index: int) -> Sample:
        if index == 0 and example is not None:
            return Sample({name: np.asarray(array, order="C") for name, array in example.items()})
        random = np.random.default_rng(index)
        return Sample({name: _random(random, graph, name) for name in graph.inputs})

    return _Made(count, make)


@dataclass(frozen=True)
class _Made:
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
    """How many entries the smallest table has that the input indexes; 2 where it indexes none."""
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
    """Items, as many to a sample as the graph's batch is. What is left over is left out."""

    def __init__(
        self,
        count: int,
        item: Callable[[int], Item],
        graph: Graph,
        origin: str,
        classes: tuple[str, ...] = (),
    ) -> None:
        """`classes` are the names of the labels from 0 on, where they have any."""
        self.classes = classes
        self._item, self._graph, self._origin = item, graph, origin
        if count == 0:
            raise UsageError(f"{origin}: there is no sample")
        self._batch = 1 if self._is_whole(item(0)) else self._batch_size()
        self._count = count // self._batch
        if self._count == 0:
            raise UsageError(f"{origin}: {count} items make no batch of {self._batch}")

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
                f"{self._origin}: the items have no batch, and the inputs' first dimensions differ:"
                f" {sorted(sizes)}; give items of the inputs' whole shapes"
            )
        return sizes.pop()

    def _is_whole(self, item: Item) -> bool:
        """The item has the batch dimension."""
        name, value = next(iter(self._graph.inputs.items()))
        array = item[0].get(name)
        return array is not None and array.shape == value.fixed

    def _joined(self, name: str, value: Value, items: Sequence[Mapping[str, Array]]) -> Array:
        missing = [item for item in items if name not in item]
        if missing:
            given = ", ".join(missing[0]) or "nothing"
            raise UsageError(f"{self._origin}: a sample has {given}, and lacks the input {name!r}")
        arrays = [item[name] for item in items]
        whole = arrays[0] if arrays[0].shape == value.fixed else np.stack(arrays)
        if whole.shape != value.fixed:
            raise UsageError(
                f"{self._origin}: the input {name!r} has the shape {value.fixed}, and a sample has"
                f" {arrays[0].shape}"
            )
        dtype = value.dtype or whole.dtype
        if dtype.kind != whole.dtype.kind and {dtype.kind, whole.dtype.kind} != {"i", "u"}:
            raise UsageError(
                f"{self._origin}: the input {name!r} is {dtype}, and a sample is {whole.dtype}"
            )
        return np.asarray(whole, dtype, order="C")


def _of_path(path: Path, graph: Graph, options: ImageOptions) -> Batches:
    if path.suffix == ".npz" and path.is_file():
        return _of_rows(path, graph)
    if not path.is_dir():
        raise UsageError(
            f"{path}: the data is a folder of images, .npy or .npz files, an .npz file, or"
            " package.module:loader; this is none of them"
        )
    files = sorted([*path.glob("*.npy"), *path.glob("*.npz")])
    if files:
        return Batches(len(files), lambda index: _of_file(files[index], graph), graph, str(path))
    name = _only_input(graph, str(path))
    found = read_folder(path, graph.inputs[name], options)

    def item(index: int) -> Item:
        array, label = found(index)
        return {name: array}, label

    return Batches(len(found), item, graph, str(path), found.classes)


def _of_rows(path: Path, graph: Graph) -> Batches:
    arrays = _loaded(path)
    labels = next((arrays.pop(name) for name in LABELS if name in arrays), None)
    if labels is not None and (labels.ndim != 1 or labels.dtype.kind not in "iu"):
        raise UsageError(
            f"{path}: labels are {labels.dtype} {labels.shape}; allowed: integers (n,)"
        )
    counts = {len(array) for array in arrays.values() if array.ndim}
    if len(counts) != 1 or (labels is not None and len(labels) not in counts):
        told = arrays if labels is None else {**arrays, "labels": labels}
        sizes = ", ".join(f"{name} {array.shape}" for name, array in told.items())
        raise UsageError(f"{path}: its arrays have no common number of rows: {sizes or 'none'}")
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
            found = np.load(file, allow_pickle=False)
            return dict(found.items()) if isinstance(found, np.lib.npyio.NpzFile) else {"": found}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path}: NumPy cannot read it: {error}") from error


def _held(items: Iterable[Any], graph: Graph, origin: str) -> list[Item]:
    """Items of an iterable in memory, up to the limits."""
    held: list[Item] = []
    size = 0
    for given in itertools.islice(items, MOST_ITEMS):
        item = _item(given, graph, origin)
        size += sum(array.nbytes for array in item[0].values())
        if held and size > MOST_BYTES:
            break
        held.append(item)
    return held


def _item(given: Any, graph: Graph, origin: str) -> Item:
    label: Any = None
    if isinstance(given, (tuple, list)) and len(given) == 2:
        given, label = given
    if not isinstance(given, Mapping):
        return _named({"": _array(given)}, graph, origin), _label(label)
    arrays = {str(name): _array(item) for name, item in given.items()}
    for name in LABELS:
        if name in arrays and name not in graph.inputs:
            label = arrays.pop(name)
    return _named(arrays, graph, origin), _label(label)


def _array(given: Any) -> Array:
    return given if isinstance(given, np.ndarray) else np.asarray(given)


def _label(given: Any) -> int | None:
    if given is None:
        return None
    label = np.asarray(given)
    if label.size != 1 or label.dtype.kind not in "iu":
        raise UsageError(f"a label is {label.dtype} {label.shape}; allowed: one whole number")
    return int(label.item())


def _named(arrays: Mapping[str, Array], graph: Graph, origin: str) -> dict[str, Array]:
    """Arrays by input: the only one is the only input's, whatever its name."""
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
