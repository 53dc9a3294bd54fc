"""Broadcasts of a model's parameters and of an optimizer's state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.optim import Optimizer

from slipstream.horovod.common.process_sets import ProcessSet, global_process_set
from slipstream.horovod.job import job
from slipstream.horovod.objects import broadcast_object
from slipstream.horovod.torch.ops import broadcast_async_


def broadcast_parameters(
    params: Mapping[str, Any] | list[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Copy the parameters and buffers of one rank to all ranks. Blocks.

    Args:
        params: Result of model.state_dict(), list of tensors, or pairs of names and tensors, as
            model.named_parameters() yields them. The names must be equal on all ranks. A value in
            `params` that is no tensor is not changed.
        root_rank: Rank of the sender in the job.
        process_set: Process set whose ranks take part (default: all ranks).

    Raises:
        ValueError: `params` has another type.
    """
    handles = [
        broadcast_async_(value, root_rank, name, process_set)
        for name, value in _named(params)
        if isinstance(value, torch.Tensor)
    ]
    for handle in handles:
        handle.wait()


def _named(params: Any) -> list[tuple[str | None, Any]]:
    if isinstance(params, Mapping):
        return sorted(cast("Mapping[str, Any]", params).items())
    if isinstance(params, Iterable):
        items = list(cast("Iterable[Any]", params))
        return [item if isinstance(item, tuple) else (None, item) for item in items]
    raise ValueError(f"invalid params of type: {type(params)}")


@dataclass(frozen=True, slots=True)
class _Stub:
    """Placeholder for a tensor in a pickled state; the tensor itself is broadcast separately."""

    number: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    device: str


def broadcast_optimizer_state(
    optimizer: Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Copy the state and the options of one rank's optimizer to the optimizers of all ranks.

    Blocks.

    Args:
        optimizer: Optimizer of this rank; on receiving ranks, the optimizer may still be without a
            state.
        root_rank: Rank of the sender in the job.
        model: Argument of Horovod's function, which has no effect in Slipstream.

    Raises:
        ValueError: The optimizer is L-BFGS, whose state does not belong to single parameters.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    is_root = job().world.rank == root_rank
    tensors: list[torch.Tensor] = []
    state: Any = _without_tensors(optimizer.state_dict(), tensors) if is_root else None
    if not optimizer.state:
        _fill_gradients(optimizer)
    state, stubs = broadcast_object((state, _stubs_of(tensors)), root_rank)
    if not is_root:
        tensors = _empty_tensors(stubs, optimizer)
    handles = [broadcast_async_(tensor, root_rank) for tensor in tensors]
    for handle in handles:
        handle.wait()
    if not is_root:
        _take_over(optimizer, _with_tensors(state, tensors))


def _take_over(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Set the state and the options of an optimizer.

    The optimizer's parameter groups stay the same objects, because schedulers refer to them.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for group, received in zip(optimizer.param_groups, state["param_groups"], strict=True):
        group.update((name, value) for name, value in received.items() if name != "params")
    optimizer.state.clear()
    for index, value in state["state"].items():
        optimizer.state[parameters[index]] = value


def _fill_gradients(optimizer: Optimizer) -> None:
    """Set missing gradients to zero, so that an untrained optimizer can make its state."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)


def _empty_tensors(stubs: list[_Stub], optimizer: Optimizer) -> list[torch.Tensor]:
    """Return tensors for a received state, on the CPU or on the GPU of this rank's parameters."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    devices = {parameter.device.type: parameter.device for parameter in parameters}
    return [
        torch.empty(stub.shape, dtype=stub.dtype, device=devices.get(stub.device, stub.device))
        for stub in stubs
    ]


def _stubs_of(tensors: list[torch.Tensor]) -> list[_Stub]:
    return [
        _Stub(i, tensor.dtype, tuple(tensor.shape), tensor.device.type)
        for i, tensor in enumerate(tensors)
    ]


def _without_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    def stub(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        tensors.append(leaf.contiguous())
        return _Stub(len(tensors) - 1, leaf.dtype, tuple(leaf.shape), leaf.device.type)

    return _mapped(value, stub)


def _with_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    return _mapped(value, lambda leaf: tensors[leaf.number] if isinstance(leaf, _Stub) else leaf)


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a copy of nested dicts, lists and tuples, with `change` applied to every leaf."""
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {key: _mapped(item, change) for key, item in items}
    if isinstance(value, (list, tuple)):
        sequence = cast("list[Any]", value)
        return type(sequence)(_mapped(item, change) for item in sequence)
    return change(value)
