"""Samples of a user's data, or of random numbers; a sample has the inputs of one run."""

# NumPy's stubs leave the element types of arrays open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from slipstream.errors import UsageError
from slipstream.infer.graph.graph import Array, Graph, Value

# Arrays of one item by input name, and its label, or None if it has none.
Item: TypeAlias = "tuple[Mapping[str, Array], int | None]"


@dataclass(frozen=True)
class Sample:
    """The inputs of one run of the model.

    Args:
        inputs: All inputs by name, in their dtypes and shapes, C-contiguous.
        labels: Correct class of each batch element, int64 of shape (batch,); None if the classes
            are unknown.
    """

    inputs: dict[str, Array]
    labels: Array | None = None


class Samples(Protocol):
    """A sequence of samples. Each access may read a file again, because no sample is cached."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Sample: ...


class Batches:
    """Samples that are made from a user's items; an item has the inputs of one batch element.

    A sample joins as many items as the graph's batch size. The last items are left out if they are
    too few for a batch. An item that already has the batch dimension is a sample by itself.

    Args:
        count: Number of items.
        item: Function that returns the item with a given index.
        graph: Graph whose inputs the samples fill.
        origin: Source of the items, for error messages.
        classes: Names of the labels 0, 1, 2 and so on (default none).

    Raises UsageError if there are too few items for one sample.
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


def synthetic(graph: Graph, count: int, example: Mapping[str, Array] | None = None) -> Samples:
    """Return samples of random numbers; every call returns the same numbers.

    Floats are normally distributed, and uint8 numbers are uniform. Other integers are valid indices
    of the tables in which the graph looks them up, or 0 and 1 if the graph uses them for no
    look-up. Random samples show whether a candidate computes the same function as the model, but
    not how accurate the candidate is on real data.

    Args:
        graph: Graph whose inputs the samples fill.
        count: Number of samples.
        example: Inputs of the first sample, by name (default None: the first sample is random,
            too).
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
    """Return the size of the smallest table that an input indexes; 2 if the input indexes none."""
    names, sizes = {name}, [2**31]
    for node in graph.nodes:
        if node.op in ("Cast", "Reshape", "Squeeze", "Unsqueeze") and node.inputs[0] in names:
            names.add(node.output)
        if node.op == "Gather" and node.inputs[1] in names:
            shape = graph.shape(node.inputs[0])
            sizes.append(shape[int(node.get("axis", 0))] if shape else 2)
    return min(sizes) if len(sizes) > 1 else 2
