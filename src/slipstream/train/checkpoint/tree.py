"""The tree of a state: JSON with plain values and the names of tensors.

Nodes that JSON lacks are objects with one key that begins with "$":

    {"$tensor": "model.weight", "array": false}    a tensor, or an array of NumPy
    {"$dict": [[0, ...], [1, ...]]}                a dict with keys that are not plain texts
    {"$tuple": [...]}, {"$float": "nan"}, {"$bytes": "AAEC"}
    {"$ranks": {"0": ..., "1": ...}}               a value of each rank, see `PerRank`

The name of a tensor is the path to it, with dots between the keys, as in
torch.distributed.checkpoint.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
import torch

from slipstream.errors import MismatchError, UsageError
from slipstream.train.checkpoint import zero

Json: TypeAlias = Any
Entries: TypeAlias = "list[tuple[Any, Any]]"
ALLOWED = (
    "tensors, arrays of NumPy, int, float, str, bool, bytes, None, lists, tuples and dicts of"
    " these, and objects with state_dict() and load_state_dict()"
)


@runtime_checkable
class HasState(Protocol):
    """An object with a state: a module, an optimizer, a scheduler or a sampler."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Take over a state."""
        ...


@dataclass
class PerRank:
    """A value that differs between ranks, such as the state of a random generator.

    All other values of a state must be equal on all ranks. A restore gives rank r the value of rank
    r. If fewer ranks saved, the value of rank r stays as it is.

    Args:
        value: Any state.
    """

    value: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Leaf:
    """A tensor of a state.

    Args:
        tensor: Tensor, which shares the memory of the value in the state.
        of_rank: Whether the tensor belongs to this rank alone.
    """

    tensor: torch.Tensor
    of_rank: bool


@dataclass(kw_only=True, slots=True)
class StateEncoder:
    """The conversion of a state to its tree.

    Args:
        rank: Rank of this process.
        leaves: Tensors by name, which `encode` fills.
    """

    rank: int
    leaves: dict[str, Leaf] = field(default_factory=dict[str, Leaf])

    def encode(self, value: Any, path: str = "", of_rank: bool = False) -> Json:
        """Return the tree of a value, and add its tensors to the leaves.

        Args:
            value: Any value that `ALLOWED` lists.
            path: Name of the value: the keys that lead to it, with dots between (default: none).
            of_rank: Whether the value belongs to this rank alone (default False).

        Raises:
            UsageError: A value has another type, or two tensors have the same name.
        """
        if isinstance(value, PerRank):
            return {"$ranks": {str(self.rank): self.encode(value.value, path, of_rank=True)}}
        if isinstance(value, torch.Tensor | np.ndarray):
            return self._tensor(value, path, of_rank)
        if zero.is_zero(value):
            parts = {"state": PerRank(zero.own_state(value)), "param_groups": zero.options(value)}
            return self.encode(parts, path, of_rank)
        if isinstance(value, HasState):
            return self.encode(value.state_dict(), path, of_rank)
        if isinstance(value, Mapping):
            return self._mapping(cast("Mapping[Any, Any]", value), path, of_rank)
        if isinstance(value, list | tuple):
            items = [
                self.encode(item, joined_name(path, index), of_rank)
                for index, item in enumerate(cast("list[Any]", value))
            ]
            return items if isinstance(value, list) else {"$tuple": items}
        return _plain(value, path)

    def _tensor(self, value: Any, path: str, of_rank: bool) -> Json:
        name = f"{path}@{self.rank}" if of_rank else path
        if name in self.leaves:
            raise UsageError(f"two tensors of the state have the name {name!r}; rename one of them")
        is_array = isinstance(value, np.ndarray)
        self.leaves[name] = Leaf(tensor=as_tensor(value, path), of_rank=of_rank)
        return {"$tensor": name, "array": is_array}

    def _mapping(self, value: Mapping[Any, Any], path: str, of_rank: bool) -> Json:
        items = {
            key: self.encode(item, joined_name(path, key), of_rank) for key, item in value.items()
        }
        if all(isinstance(key, str) and not key.startswith("$") for key in items):
            return items
        return {"$dict": [[_plain(key, path), item] for key, item in items.items()]}


def as_tensor(value: Any, path: str) -> torch.Tensor:
    """Return a tensor that shares the memory of a tensor or, if possible, of an array."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    array: Any = value
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    try:
        return torch.from_numpy(array)  # pyright: ignore[reportUnknownMemberType]
    except (TypeError, ValueError) as error:
        raise UsageError(f"the array {path!r} has dtype {array.dtype}: {error}") from error


def joined_name(path: str, key: Any) -> str:
    """Return the name of an item in a container."""
    return f"{path}.{key}" if path else str(key)


def _plain(value: Any, path: str) -> Json:
    if isinstance(value, np.generic):
        value = cast("Any", value).item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(float(value))}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise UsageError(f"{path!r} of the state is a {type(value).__name__}; allowed: {ALLOWED}")


def kind_of(node: Json) -> str | None:
    """Return the key of a node that JSON lacks, such as "$tensor"; None for other nodes."""
    if isinstance(node, dict):
        key = next(iter(cast("dict[str, Any]", node)), "")
        return key if key.startswith("$") else None
    return None


def decode(node: Json, tensor: Callable[[Json], Any], rank: int) -> Any:
    """Return the value of a tree.

    Args:
        node: Tree of the value.
        tensor: Function that returns the value of a node "$tensor".
        rank: Rank whose part of each `PerRank` is returned; None stands for a missing part.
    """
    kind = kind_of(node)
    if kind == "$tensor":
        return tensor(node)
    if kind == "$ranks":
        part = node[kind].get(str(rank))
        return None if part is None else decode(part, tensor, rank)
    if kind == "$float":
        return float(node[kind])
    if kind == "$bytes":
        return base64.b64decode(node[kind])
    if kind == "$tuple":
        return tuple(decode(item, tensor, rank) for item in node[kind])
    entries = entries_of(node)
    if entries is not None:
        return {key: decode(item, tensor, rank) for key, item in entries}
    if isinstance(node, list):
        return [decode(item, tensor, rank) for item in cast("list[Any]", node)]
    return node


def entries_of(node: Json) -> Entries | None:
    """Return the keys and items of a dict's node; None for other nodes."""
    kind = kind_of(node)
    if kind == "$dict":
        return [(decode(key, _no_tensor, 0), item) for key, item in node[kind]]
    if kind is None and isinstance(node, dict):
        return list(cast("dict[Any, Any]", node).items())
    return None


def tensor_names(node: Json) -> Iterator[str]:
    """Yield the names of all tensors of a tree, those of all ranks included."""
    if kind_of(node) == "$tensor":
        yield node["$tensor"]
    elif isinstance(node, dict):
        for item in cast("dict[str, Any]", node).values():
            yield from tensor_names(item)
    elif isinstance(node, list):
        for item in cast("list[Any]", node):
            yield from tensor_names(item)


def _no_tensor(node: Json) -> Any:
    raise UsageError(f"a key of the state is {node}; allowed: plain values")


def merge(first: Json, other: Json, rank: int, path: str = "") -> Json:
    """Return the tree of rank 0 with what another rank adds: its parts of each `PerRank`.

    Args:
        first: Tree of rank 0, or of several ranks together.
        other: Tree of the other rank.
        rank: Number of the other rank, for messages.
        path: Name of the trees' value (default: the whole state).

    Raises:
        MismatchError: The trees differ in anything else.
    """
    if kind_of(first) == kind_of(other) == "$ranks":
        return {"$ranks": {**first["$ranks"], **other["$ranks"]}}
    if isinstance(first, dict) and isinstance(other, dict):
        ours, theirs = cast("dict[str, Any]", first), cast("dict[str, Any]", other)
        if list(ours) == list(theirs):
            return {
                key: merge(
                    ours[key], theirs[key], rank, path if key[:1] == "$" else joined_name(path, key)
                )
                for key in ours
            }
    elif isinstance(first, list) and isinstance(other, list):
        items = cast("list[Any]", first), cast("list[Any]", other)
        if len(items[0]) == len(items[1]):
            return [
                merge(a, b, rank, joined_name(path, index))
                for index, (a, b) in enumerate(zip(*items, strict=True))
            ]
    elif (type(first), first) == (type(other), other):  # pyright: ignore[reportUnknownArgumentType]
        return cast("Json", first)
    raise MismatchError(
        f"{path!r} of the state is {_shortened(first)} on rank 0 and {_shortened(other)} on rank"
        f" {rank}; pass equal values on all ranks, or wrap the value: PerRank(value)"
    )


def _shortened(node: Json) -> str:
    text = (
        f"a dict with {list(cast('dict[str, Any]', node))}"
        if isinstance(node, dict)
        else repr(node)
    )
    return text if len(text) <= 100 else f"{text[:97]}..."
