"""Restoring of a state: what is read into which tensors, and which values replace others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from slipstream.errors import MismatchError, UsageError
from slipstream.train.checkpoint import zero
from slipstream.train.checkpoint.manifest import CheckpointManifest, SavedTensor
from slipstream.train.checkpoint.reading import Target
from slipstream.train.checkpoint.sharding import local_part
from slipstream.train.checkpoint.tensor_file import DTYPES, NAMES
from slipstream.train.checkpoint.tree import (
    HasState,
    Json,
    PerRank,
    as_tensor,
    decode,
    entries_of,
    joined_name,
    kind_of,
)

# Returns a tensor for a saved one, by the path in the state of an object; None for the default.
Proposal = Callable[[str, SavedTensor], "torch.Tensor | None"]


@dataclass(kw_only=True, slots=True)
class RestorePlan:
    """The tensors to read for a state, and the changes that follow once all of them are read.

    Args:
        manifest: Manifest of the checkpoint.
        rank: Rank of this process.
        targets: Boxes to read, which `add` fills.
        changes: Calls that set plain values and load the states of objects, which `add` fills.
        kept: Paths of the values that stay as they are, because this rank did not save.
    """

    manifest: CheckpointManifest
    rank: int
    targets: list[Target] = field(default_factory=list[Target])
    changes: list[Callable[[], Any]] = field(default_factory=list[Callable[[], Any]])
    kept: list[str] = field(default_factory=list[str])

    def add_state(self, state: dict[str, Any]) -> None:
        """Plan the restoring of all values of a state.

        Raises:
            MismatchError: The checkpoint lacks a value, or has a tensor of another shape or dtype.
        """
        self._add_items(state, self.manifest.state, "")

    def _add_items(self, state: dict[Any, Any], node: Json, path: str) -> None:
        saved = entries_of(node)
        if saved is None:
            raise MismatchError(f"{path!r} is a dict in the state, but not in {self._checkpoint}")
        nodes = dict(saved)
        missing = [joined_name(path, key) for key in state if key not in nodes]
        if missing:
            raise MismatchError(
                f"{self._checkpoint} has no {', '.join(map(repr, missing))}, but it has"
                f" {', '.join(repr(joined_name(path, key)) for key in nodes)}; leave out of the"
                " state what the checkpoint lacks"
            )
        for key in list(state):
            self._add(state, key, nodes[key], joined_name(path, key))

    def _add(self, holder: Any, key: Any, node: Json, path: str) -> None:
        """Plan the restoring of holder[key]."""
        value = holder[key]
        if isinstance(value, PerRank):
            self._add_own(value, node, path)
        elif isinstance(value, torch.Tensor | np.ndarray):
            self._add_tensor(value, node, path)
        elif zero.is_zero(value):
            self._add_zero(value, node, path)
        elif isinstance(value, HasState):
            self._add_object(value, node, path)
        elif isinstance(value, dict):
            self._add_items(cast("dict[Any, Any]", value), node, path)
        elif isinstance(value, list | tuple) and _has_objects(value):
            self._add_sequence(holder, key, node, path)
        else:
            restored = self._decode(node, path, value, None)
            self.changes.append(lambda: holder.__setitem__(key, restored))

    def _add_sequence(self, holder: Any, key: Any, node: Json, path: str) -> None:
        """Plan the restoring of a list or tuple that has objects, each of which stays the same."""
        items = list(holder[key])
        saved = node["$tuple"] if kind_of(node) == "$tuple" else node
        if not isinstance(saved, list) or len(cast("list[Json]", saved)) != len(items):
            raise MismatchError(
                f"{path!r} has {len(items)} items in the state, but not in {self._checkpoint};"
                " pass as many objects as were saved"
            )
        for index, item in enumerate(cast("list[Json]", saved)):
            self._add(items, index, item, joined_name(path, index))
        is_tuple = isinstance(holder[key], tuple)
        self.changes.append(lambda: holder.__setitem__(key, tuple(items) if is_tuple else items))

    def _add_own(self, value: PerRank, node: Json, path: str) -> None:
        if kind_of(node) != "$ranks":
            raise MismatchError(f"{path!r} is no PerRank in {self._checkpoint}")
        part = node["$ranks"].get(str(self.rank))
        if part is None:
            self.kept.append(path)
            return
        holder = {"value": value.value}
        self._add(holder, "value", part, path)
        self.changes.append(lambda: setattr(value, "value", holder["value"]))

    def _add_tensor(self, value: Any, node: Json, path: str) -> None:
        if kind_of(node) != "$tensor":
            raise MismatchError(f"{path!r} is a tensor in the state, but not in {self._checkpoint}")
        tensor = as_tensor(value, path)
        array: Any = value
        is_array = isinstance(value, np.ndarray) and array.size > 0
        if is_array and not np.shares_memory(array, tensor.numpy()):
            raise UsageError(f"the array {path!r} cannot be filled in place: pass one in C order")
        saved = self.manifest.tensors[node["$tensor"]]
        if (saved.dtype, saved.shape) != (NAMES.get(tensor.dtype), tuple(tensor.shape)):
            raise MismatchError(
                f"the tensor {path!r} is {tensor.dtype} {list(tensor.shape)}, but"
                f" {DTYPES[saved.dtype]} {list(saved.shape)} in {self._checkpoint}"
            )
        self._read_into(node["$tensor"], tensor)

    def _read_into(self, name: str, tensor: torch.Tensor) -> None:
        if tensor.is_meta:
            raise UsageError(
                f"the tensor {name!r} of the state has no memory (device meta); call to_empty() of"
                " the module before restore()"
            )
        part = local_part(tensor)
        if part is not None and part[0].numel():
            self.targets.append(Target(name=name, box=part[1], tensor=part[0]))

    def _add_object(self, value: HasState, node: Json, path: str) -> None:
        if isinstance(value, Optimizer):
            return self._add_optimizer(value, node, path)
        restored = self._decode(node, path, value.state_dict(), None)
        self.changes.append(lambda: value.load_state_dict(restored))

    def _add_optimizer(self, optimizer: Optimizer, node: Json, path: str) -> None:
        present = optimizer.state_dict()
        groups: list[Any] = present["param_groups"]
        is_divided = zero.is_divided(node)
        if is_divided:
            saved, options = self._saved_optimizer(node, path, groups)
            node = {"state": {"$dict": list(saved.items())}, "param_groups": options}
        restored = self._decode(node, path, present, _optimizer_proposal(optimizer))
        restored["state"] = _by_number(restored.get("state", {}))
        if is_divided:
            for group, other in zip(restored["param_groups"], groups, strict=True):
                group["params"] = other["params"]  # their numbers, which ZeRO does not save
        self.changes.append(lambda: optimizer.load_state_dict(restored))

    def _add_zero(self, optimizer: Any, node: Json, path: str) -> None:
        """Plan the restoring of this rank's part of an optimizer, which others may have saved."""
        saved, groups = self._saved_optimizer(node, path, optimizer.param_groups)
        present = zero.own_state(optimizer)
        state = {
            number: self._decode(saved[number], f"{path}.state.{number}", present.get(number), None)
            for number in zero.own_parameters(optimizer)
            if number in saved
        }
        options = self._decode(groups, f"{path}.param_groups", None, None)
        self.changes.append(lambda: zero.load(optimizer, state, options))

    def _saved_optimizer(
        self, node: Json, path: str, groups: list[Any]
    ) -> tuple[dict[int, Json], list[Json]]:
        """Return the saved state by number of the parameter, and the options of all groups.

        Args:
            node: Tree of an optimizer, whose state was divided among the ranks or not.
            path: Name of the optimizer.
            groups: Groups of parameters of the optimizer in the state.
        """
        try:
            saved, options = zero.saved_parts(node)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise MismatchError(f"{path!r} is no optimizer in {self._checkpoint}") from error
        num_parameters = sum(len(group["params"]) for group in groups)
        if len(options) != len(groups) or any(not 0 <= n < num_parameters for n in saved):
            raise MismatchError(
                f"{path!r} is an optimizer with {len(groups)} groups of {num_parameters} parameters"
                f" in the state, but with {len(options)} groups and the parameters"
                f" {sorted(saved)} in {self._checkpoint}; pass an optimizer of the same parameters"
            )
        return saved, options

    def _decode(self, node: Json, path: str, like: Any, proposal: Proposal | None) -> Any:
        """Return the saved value; its tensors are filled when all targets are read.

        Args:
            node: Tree of the value.
            path: Name of the value.
            like: Present state of the object; saved tensors are read into equal ones of it.
            proposal: Function that returns a tensor for a saved one that `like` lacks.
        """
        known = _tensors_of(like, path)

        def tensor_of(leaf: Json) -> Any:
            name: str = leaf["$tensor"]
            saved = self.manifest.tensors[name]
            target = known.get(name, known.get(name.rpartition("@")[0]))
            if target is None or not _is_alike(target, saved):
                target = proposal(name.removeprefix(f"{path}."), saved) if proposal else None
            if target is None:
                target = torch.empty(saved.shape, dtype=DTYPES[saved.dtype], device="cpu")
            self._read_into(name, target)
            return target.numpy() if leaf["array"] else target

        return decode(node, tensor_of, self.rank)

    @property
    def _checkpoint(self) -> str:
        return f"the checkpoint of step {self.manifest.step}"


def _has_objects(value: Any) -> bool:
    """Return whether a value is, or has at any depth, an object that is restored by itself."""
    if isinstance(value, Mapping):
        return any(map(_has_objects, cast("Mapping[Any, Any]", value).values()))
    if isinstance(value, list | tuple):
        return any(map(_has_objects, cast("list[Any]", value)))
    return isinstance(value, PerRank | HasState)


def _tensors_of(value: Any, path: str) -> dict[str, torch.Tensor]:
    """Return the tensors of a state by name."""
    if isinstance(value, torch.Tensor):
        return {path: value.detach()}
    tensors: dict[str, torch.Tensor] = {}
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[Any, Any]", value).items():
            tensors |= _tensors_of(item, joined_name(path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(cast("list[Any]", value)):
            tensors |= _tensors_of(item, joined_name(path, index))
    return tensors


def _is_alike(tensor: torch.Tensor, saved: SavedTensor) -> bool:
    return tensor.dtype == DTYPES[saved.dtype] and tuple(tensor.shape) == saved.shape


def _by_number(state: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the state of an optimizer by the numbers of its parameters.

    torch.distributed.checkpoint turns the numbers into texts, which load_state_dict() would ignore.
    """
    return {
        int(key) if isinstance(key, str) and key.isdecimal() else key: item
        for key, item in state.items()
    }


def _optimizer_proposal(optimizer: Optimizer) -> Proposal:
    """Return a proposal that shards the state of an optimizer as its parameters are sharded.

    An optimizer that has not made a step has no state, so nothing else tells how to shard it.
    """
    groups: list[dict[str, Any]] = optimizer.param_groups
    parameters: list[torch.Tensor] = [p for group in groups for p in group["params"]]

    def propose(name: str, saved: SavedTensor) -> torch.Tensor | None:
        section, _, rest = name.partition(".")
        number = rest.partition(".")[0]
        if section != "state" or not number.isdecimal() or int(number) >= len(parameters):
            return None
        parameter = parameters[int(number)].detach()
        if not isinstance(parameter, DTensor) or tuple(parameter.shape) != saved.shape:
            return None
        return torch.zeros_like(parameter, dtype=DTYPES[saved.dtype])

    return propose
