"""The same weights, optimizer and objects on all ranks."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

from slipstream.horovod.job import job
from slipstream.horovod.process_sets import ProcessSet, global_process_set
from slipstream.horovod.torch.calls import allgather, broadcast_
from slipstream.horovod.torch.ops import broadcast_async_


def broadcast_parameters(
    params: Mapping[str, Any] | list[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Replace parameters and buffers by those of one rank, on all. Blocks.

    Args:
        params: model.state_dict(), or a list of tensors or of pairs as model.named_parameters()
            gives them; the same names on all ranks. What is no tensor is left as it is.
        root_rank: in the job.
        process_set: whose ranks take part.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(params, Mapping):
        pairs = sorted(params.items())
    elif isinstance(params, Iterable):
        pairs = [each if isinstance(each, tuple) else (None, each) for each in params]
    else:
        raise ValueError(f"invalid params of type: {type(params)}")
    tensors = [(name, each) for name, each in pairs if isinstance(each, torch.Tensor)]
    handles = [broadcast_async_(each, root_rank, name, process_set) for name, each in tensors]
    for handle in handles:
        handle.wait()


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return one rank's object on all ranks; it is pickled. Blocks.

    Args:
        obj: not looked at but on that rank.
        root_rank: in the job.
        name: stands for it on all ranks; default: they are counted.
        process_set: whose ranks take part.
    """
    is_root = job().world.rank == root_rank
    data = bytearray(pickle.dumps(obj)) if is_root else bytearray()
    size = torch.tensor([len(data)])
    broadcast_(size, root_rank, _part(name, "size"), process_set)
    memory = torch.empty(int(size), dtype=torch.uint8)
    if is_root:
        memory.copy_(torch.frombuffer(data, dtype=torch.uint8))
    broadcast_(memory, root_rank, _part(name, "data"), process_set)
    return obj if is_root else pickle.loads(memory.numpy().tobytes())


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return the objects of all ranks, in their order, on all ranks; they are pickled. Blocks."""
    data = torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8)
    sizes = allgather(torch.tensor([len(data)]), _part(name, "size"), process_set)
    gathered = allgather(data, _part(name, "data"), process_set)
    counts: list[int] = sizes.tolist()  # pyright: ignore[reportUnknownMemberType]
    return [pickle.loads(part.numpy().tobytes()) for part in torch.split(gathered, counts)]


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
        optimizer: as on that rank; it need not have a state elsewhere.
        root_rank: in the job.
        model: not needed here.

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
        optimizer.load_state_dict(_with_tensors(state, tensors))


def _have_gradients(optimizer: Optimizer) -> None:
    """Leaves zeros as gradients, as Horovod does where nothing was trained yet."""
    for group in optimizer.param_groups:
        for each in group["params"]:
            if each.requires_grad and each.grad is None:
                each.grad = torch.zeros_like(each)


def _stubs_of(tensors: list[torch.Tensor]) -> list[_Stub]:
    return [_Stub(i, each.dtype, tuple(each.shape)) for i, each in enumerate(tensors)]


def _without_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value.contiguous())
        return _Stub(len(tensors) - 1, value.dtype, tuple(value.shape))
    if isinstance(value, dict):
        return {key: _without_tensors(each, tensors) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_without_tensors(each, tensors) for each in value)
    return value


def _with_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, _Stub):
        return tensors[value.number]
    if isinstance(value, dict):
        return {key: _with_tensors(each, tensors) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_with_tensors(each, tensors) for each in value)
    return value


def _part(name: str | None, part: str) -> str | None:
    return None if name is None else f"{name}.{part}"
