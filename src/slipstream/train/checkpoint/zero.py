"""The state of PyTorch's ZeroRedundancyOptimizer: each rank has that of its own parameters.

Its own state_dict() works only after all ranks have sent their parts to one rank. Here each rank
saves and restores its part, whatever the number of ranks. A checkpoint of it restores an optimizer
that is not divided, and the reverse.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch

_MODULE = "torch.distributed.optim.zero_redundancy_optimizer"


def is_zero(value: object) -> bool:
    """Return whether a value is a ZeroRedundancyOptimizer, without an import that costs 0.4 s."""
    module = sys.modules.get(_MODULE)
    return module is not None and isinstance(value, module.ZeroRedundancyOptimizer)


def own_parameters(optimizer: Any) -> dict[int, torch.Tensor]:
    """Return the parameters whose state this rank has, by their number among all parameters."""
    numbers = {id(each): number for number, each in enumerate(_parameters(optimizer.param_groups))}
    return {numbers[id(each)]: each for each in _parameters(optimizer.optim.param_groups)}


def own_state(optimizer: Any) -> dict[int, dict[str, Any]]:
    """Return the state of this rank's parameters, by their number among all parameters."""
    states = optimizer.optim.state
    own = own_parameters(optimizer).items()
    return {number: dict(states[parameter]) for number, parameter in own if parameter in states}


def options(optimizer: Any) -> list[dict[str, Any]]:
    """Return the options of all groups of parameters, such as the learning rate."""
    return [_without_parameters(group) for group in optimizer.param_groups]


def load(
    optimizer: Any, state: Mapping[int, Mapping[str, Any]], groups: Sequence[Mapping[str, Any]]
) -> None:
    """Set the state of this rank's parameters, and the options of all groups.

    Args:
        optimizer: ZeroRedundancyOptimizer of this rank.
        state: State by number of the parameter; this rank's parameters suffice.
        groups: Options of each group.
    """
    local = optimizer.optim.state_dict()
    own = enumerate(own_parameters(optimizer))
    local["state"] = {index: state[number] for index, number in own if number in state}
    for whole, part, values in zip(
        optimizer.param_groups, local["param_groups"], groups, strict=True
    ):
        whole.update(values)
        part.update(values)
    optimizer.optim.load_state_dict(local)


def is_divided(node: Any) -> bool:
    """Return whether the tree of an optimizer has the parts of the ranks of a ZeRO optimizer."""
    state: Any = cast("dict[str, Any]", node).get("state") if isinstance(node, dict) else None
    return isinstance(state, dict) and "$ranks" in state


def saved_parts(node: Any) -> tuple[dict[int, Any], list[Any]]:
    """Return the state of an optimizer's tree by number of the parameter, and its groups' options.

    Args:
        node: Tree of an optimizer, whose state was divided among the ranks or not.

    Raises TypeError, KeyError, ValueError or AttributeError if it is the tree of something else.
    """
    state = node["state"]
    parts = state["$ranks"].values() if is_divided(node) else [state]
    saved = {int(n): item for part in parts for n, item in part.get("$dict", part.items())}
    return dict(sorted(saved.items())), [_without_parameters(each) for each in node["param_groups"]]


def _parameters(groups: Sequence[Mapping[str, Any]]) -> list[torch.Tensor]:
    return [parameter for group in groups for parameter in group["params"]]


def _without_parameters(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}
