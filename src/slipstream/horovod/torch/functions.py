"""The same weights, optimizer and objects on all ranks."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import cloudpickle  # pyright: ignore[reportMissingTypeStubs]
import torch
from torch.optim import Optimizer

from slipstream.horovod.common.exceptions import HorovodInternalError
from slipstream.horovod.common.process_sets import ProcessSet, global_process_set
from slipstream.horovod.job import job
from slipstream.horovod.torch.calls import allgather, broadcast_
from slipstream.horovod.torch.ops import broadcast_async_


def broadcast_parameters(
    params: Mapping[str, Any] | list[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Replace parameters and buffers by those of one rank, on all. Blocks.

    Args:
        params: model.state_dict(), or a list of tensors or of pairs as from
            model.named_parameters(); the same names on all ranks. A value that is no tensor stays
            as it is.
        root_rank: Rank in the job that sends.
        process_set: Process set whose ranks take part (default: all ranks).

    Raises:
        ValueError: it is neither.
    """
    handles = [
        broadcast_async_(each, root_rank, name, process_set)
        for name, each in _named(params)
        if isinstance(each, torch.Tensor)
    ]
    for handle in handles:
        handle.wait()


def _named(params: Any) -> list[tuple[str | None, Any]]:
    if isinstance(params, Mapping):
        return sorted(cast("Mapping[str, Any]", params).items())
    if isinstance(params, Iterable):
        listed = list(cast("Iterable[Any]", params))
        return [each if isinstance(each, tuple) else (None, each) for each in listed]
    raise ValueError(f"invalid params of type: {type(params)}")


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return one rank's object on all ranks; it is pickled. Blocks.

    Args:
        obj: Object to send; ignored on all ranks but the root.
        root_rank: Rank in the job that sends.
        name: Name, the same on all ranks and not in use for another object under way (default: a
            name of its own, whatever the type of the object).
        process_set: Process set whose ranks take part (default: all ranks).
    """
    name = "broadcast_object" if name is None else name
    is_root = job().world.rank == root_rank
    data, why = _pickled(obj) if is_root else (bytearray(), None)
    size = torch.tensor([-1 if why else len(data)])
    broadcast_(size, root_rank, f"{name}.size", process_set)
    if int(size) < 0:
        raise HorovodInternalError(
            f"rank {root_rank} cannot pickle the object that it broadcasts"
        ) from why
    memory = torch.empty(int(size), dtype=torch.uint8)
    if is_root:
        memory.copy_(torch.frombuffer(data, dtype=torch.uint8))
    broadcast_(memory, root_rank, f"{name}.data", process_set)
    return obj if is_root else pickle.loads(memory.numpy().tobytes())


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return the objects of all ranks, in their order, on all ranks; they are pickled. Blocks.

    Args:
        obj: Object of this rank; ranks may have objects of different types.
        name: Name, as in `broadcast_object`.
        process_set: Process set whose ranks take part (default: all ranks).
    """
    name = "allgather_object" if name is None else name
    memory, why = _pickled(obj)
    own = torch.tensor([-1 if why else len(memory)])
    sizes = allgather(own, f"{name}.size", process_set)
    if int(sizes.min()) < 0:
        places = [place for place, each in enumerate(sizes) if int(each) < 0]
        raise HorovodInternalError(
            f"ranks {places} of the process set cannot pickle the object that they gather"
        ) from why
    data = torch.frombuffer(memory, dtype=torch.uint8)
    gathered = allgather(data, f"{name}.data", process_set)
    parts = torch.split(gathered, [int(each) for each in sizes])
    return [pickle.loads(part.numpy().tobytes()) for part in parts]


def _pickled(obj: Any) -> tuple[bytearray, Exception | None]:
    """Return an object's bytes, or why there are none: all ranks are to hear of it."""
    try:
        pickled: bytes = cloudpickle.dumps(obj)  # pyright: ignore[reportUnknownMemberType]
        return bytearray(pickled), None
    except Exception as error:  # noqa: BLE001  whatever a user's object raises
        return bytearray(), error


@dataclass(frozen=True, slots=True)
class _Stub:
    """Stands for a tensor in a state whose tensors travel for themselves."""

    number: int
    dtype: torch.dtype
    shape: tuple[int, ...]


def broadcast_optimizer_state(
    optimizer: Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Give the optimizers of all ranks the state and the options of one. Blocks.

    Args:
        optimizer: Optimizer to send; it need not have a state on the other ranks.
        root_rank: Rank in the job that sends.
        model: Ignored here.

    Raises:
        ValueError: it is L-BFGS, whose state cannot be divided by parameters.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    is_root = job().world.rank == root_rank
    tensors: list[torch.Tensor] = []
    state: Any = _without_tensors(optimizer.state_dict(), tensors) if is_root else None
    if not optimizer.state:
        _have_gradients(optimizer)
    state, stubs = broadcast_object((state, _stubs_of(tensors)), root_rank)
    if not is_root:
        tensors = [torch.empty(each.shape, dtype=each.dtype) for each in stubs]
    handles = [broadcast_async_(each, root_rank) for each in tensors]
    for handle in handles:
        handle.wait()
    if not is_root:
        _take_over(optimizer, _with_tensors(state, tensors))


def _take_over(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Give an optimizer a state. Its groups stay the same objects, which schedulers refer to."""
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    for group, received in zip(optimizer.param_groups, state["param_groups"], strict=True):
        group.update((name, value) for name, value in received.items() if name != "params")
    optimizer.state.clear()
    for place, value in state["state"].items():
        optimizer.state[parameters[place]] = value


def _have_gradients(optimizer: Optimizer) -> None:
    """Set gradients to zero, as Horovod does if nothing was trained yet."""
    for group in optimizer.param_groups:
        for each in group["params"]:
            if each.requires_grad and each.grad is None:
                each.grad = torch.zeros_like(each)


def _stubs_of(tensors: list[torch.Tensor]) -> list[_Stub]:
    return [_Stub(i, each.dtype, tuple(each.shape)) for i, each in enumerate(tensors)]


def _without_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    def stub(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        tensors.append(leaf.contiguous())
        return _Stub(len(tensors) - 1, leaf.dtype, tuple(leaf.shape))

    return _mapped(value, stub)


def _with_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    return _mapped(value, lambda leaf: tensors[leaf.number] if isinstance(leaf, _Stub) else leaf)


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a state whose leaves are changed."""
    if isinstance(value, dict):
        known = cast("dict[Any, Any]", value)
        return {key: _mapped(each, change) for key, each in known.items()}
    if isinstance(value, (list, tuple)):
        several = cast("list[Any]", value)
        return type(several)(_mapped(each, change) for each in several)
    return change(value)
