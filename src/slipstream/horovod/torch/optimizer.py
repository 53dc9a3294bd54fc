"""An optimizer whose step waits for the gradients of all ranks."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import Parameter
from torch.optim import Optimizer

from slipstream.horovod.common.process_sets import ProcessSet, global_process_set
from slipstream.horovod.common.util import split_list
from slipstream.horovod.job import job, queue_of
from slipstream.horovod.reductions import Adasum, Average, Reduction
from slipstream.horovod.torch.compression import Compression, Compressor
from slipstream.horovod.torch.ops import allreduce_async_
from slipstream.horovod.torch.reducer import Reducer, Terms
from slipstream.horovod.torch.submit import OPTIMIZER, full_name

_NO_SKIP = (
    "optimizer.step() called without optimizer.skip_synchronize() context after"
    " optimizer.synchronize(). This can cause training slowdown. You may want to consider using"
    " optimizer.skip_synchronize() context if you use optimizer.synchronize() in your code."
)
_ZEROED_EARLY = (
    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or"
    " optimizer.synchronize(). This is prohibited as it can cause a race condition."
)


def DistributedOptimizer(  # noqa: N802  Horovod's name
    optimizer: Optimizer,
    named_parameters: Iterable[tuple[str, Parameter]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: Reduction = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Parameter]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return an optimizer of the same class, state and parameters that trains data-parallel.

    Gradients are sent as soon as backward has made them, those of the first layers with priority;
    `step()` waits for all. All ranks make it alike.

    Args:
        optimizer: Optimizer that updates the parameters.
        named_parameters: Pairs as from model.named_parameters(), for all of the optimizer's
            parameters (default: parameters are numbered).
        compression: Compression of gradients; Compression.fp16, bf16 and int8 encode float32
            between hosts only, and sum in float32.
        backward_passes_per_step: Number of backward passes whose gradients add up before they are
            sent.
        op: Reduction: Average, Sum or Adasum. Adasum reduces the changes that each rank's own step
            makes, and does no compression.
        gradient_predivide_factor: Divisor of gradients before the sum; the rest of the average
            comes after it. Allowed for Average only.
        num_groups: Older form of `groups`.
        groups: Number of groups of gradients, or lists of parameters; each group is reduced as one
            (default: gradients that are ready together are fused).
        sparse_as_dense: Whether sparse gradients are sent as dense ones.
        process_set: Process set whose ranks take part (default: all ranks).

    Raises:
        ValueError: names are lacking or not unique, or an argument is not allowed.
        NotImplementedError: Adasum with a process set.
    """
    if num_groups:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups` and will be removed",
            DeprecationWarning,
            stacklevel=2,
        )
        groups = num_groups if groups is None else groups
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if backward_passes_per_step < 1:
        raise ValueError("backward_passes_per_step must be > 0")
    if process_set.process_set_id is None or not job().sets:
        raise ValueError(f"Process set does not exist or has not been registered. {process_set}")
    names = _names(optimizer, named_parameters, full_name(OPTIMIZER, None, process_set))
    grouped = _grouped(groups, [each for each in names if each.requires_grad])
    if op == Adasum and job().world.size == 1:
        op = Average  # of one, which is the same
    terms = Terms(
        compression=compression,
        op=op,
        predivide=gradient_predivide_factor,
        sparse_as_dense=sparse_as_dense,
        process_set=process_set,
    )
    if op == Adasum and process_set is not global_process_set:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")
    if op == Adasum:
        return _made(optimizer, _AdasumOptimizer, names)
    included = process_set.included() and queue_of(process_set).group.size > 1
    reducer = Reducer(names if included else {}, grouped, backward_passes_per_step, terms)
    return _made(optimizer, _GradientOptimizer, names, reducer, terms)


def _made(optimizer: Optimizer, mixin: type[_Distributed], *connected: Any) -> Any:
    """Return an optimizer of a class of its own, with the state and parameters of another."""
    kind: Any = type(type(optimizer).__name__, (mixin, type(optimizer)), {"__module__": __name__})
    made = kind.__new__(kind)
    # A scheduler may have replaced the methods of the optimizer that was passed.
    replaced = ("step", "zero_grad")
    made.__dict__.update((k, v) for k, v in vars(optimizer).items() if k not in replaced)
    made.connect(*connected)
    return made


class _Distributed:
    """Stands before the optimizer's own class; connect() has the place of its __init__."""

    def _own(self, name: str) -> Callable[..., Any]:
        """Return a method of the optimizer's own class."""
        return getattr(super(), name)


class _GradientOptimizer(_Distributed):
    def connect(self, names: dict[Parameter, str], reducer: Reducer, terms: Terms) -> None:
        self._parameter_names = names  # Horovod's tests look at it
        self._reducer = reducer
        self.op, self.process_set = terms.op, terms.process_set
        self.gradient_predivide_factor = terms.predivide
        self.sparse_as_dense = terms.sparse_as_dense
        self._synchronized = False
        self._should_synchronize = True

    @property
    def backward_passes_per_step(self) -> int:
        """Passes whose gradients add up before they are sent."""
        return self._reducer.passes

    @backward_passes_per_step.setter
    def backward_passes_per_step(self, passes: int) -> None:
        self._reducer.passes = passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Have gradients of so many passes add up before they are sent, from now on."""
        self.backward_passes_per_step = passes

    def synchronize(self) -> None:
        """Block until the gradients are those of all ranks; clip them after this."""
        self._reducer.synchronize()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Generator[None]:
        """Within, step() does not wait: synchronize() was called before."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Wait for the gradients of all ranks, and update the parameters."""
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(_NO_SKIP, stacklevel=2)
            self.synchronize()
        self._synchronized = False
        return self._own("step")(closure and self._synchronizing(closure))

    def _synchronizing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return a closure after which gradients are those of all ranks."""

        def call() -> Any:
            with torch.enable_grad():
                loss = closure()
            self._reducer.synchronize()
            return loss

        return call

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Drop the gradients.

        Raises:
            AssertionError: they are under way.
        """
        if not self._reducer.is_idle:
            raise AssertionError(_ZEROED_EARLY)
        self._own("zero_grad")(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Take over a state; what is under way is forgotten."""
        self._reducer.reset()
        self._synchronized, self._should_synchronize = False, True
        self._own("load_state_dict")(*args, **kwargs)


class _AdasumOptimizer(_Distributed):
    def connect(self, names: dict[Parameter, str]) -> None:
        self._parameter_names = names
        self.op, self.backward_passes_per_step = Adasum, 1

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Note it: gradients add up on each rank until step() is called."""
        self.backward_passes_per_step = passes

    def synchronize(self) -> None:
        """Nothing: what is reduced comes of step()."""

    @contextmanager
    def skip_synchronize(self) -> Generator[None]:
        """Refuse: there is nothing to skip."""
        raise AssertionError(
            "Skipping synchronization is not supported when using Adasum optimizer."
        )
        yield

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make this rank's own step, and replace its changes by those of all ranks."""
        names = self._parameter_names
        before = {each: each.detach().clone() for each in names if each.requires_grad}
        result = self._own("step")(closure)
        with torch.no_grad():
            changes = {each: each.detach() - was for each, was in before.items()}
            handles = [
                allreduce_async_(change, name=names[each], op=Adasum)
                for each, change in changes.items()
            ]
            for handle in handles:
                handle.wait()
            for each, was in before.items():
                each.copy_(was + changes[each])
        return result


# PyTorch wraps a step that is not marked so, and would call its hooks twice.
for _kind in (_GradientOptimizer, _AdasumOptimizer):
    _step: Any = _kind.step
    _step.hooked = True


def _names(
    optimizer: Optimizer, named_parameters: Iterable[tuple[str, Parameter]] | None, unnamed: str
) -> dict[Parameter, str]:
    """Return the names of the optimizer's parameters; `unnamed` begins those without one."""
    own: list[Parameter] = [p for group in optimizer.param_groups for p in group["params"]]
    if named_parameters is None:
        return {each: f"{unnamed}.{i}" for i, each in enumerate(own)}
    named: list[Any] = list(named_parameters)
    if not all(isinstance(each, tuple) for each in named):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced by"
            " model.named_parameters()."
        )
    known = [name for name, _ in named]
    if doubles := sorted({name for name in known if known.count(name) > 1}):
        raise ValueError(
            "Parameter names in named_parameters must be unique. Found duplicates:"
            f" {', '.join(doubles)}"
        )
    names: dict[Parameter, str] = {parameter: name for name, parameter in named}
    if missing := [str(id(each)) for each in own if each not in names]:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named."
            f" Python object ids: {', '.join(missing)}"
        )
    return {each: names[each] for each in own}


def _grouped(
    groups: int | Sequence[Sequence[Parameter]] | None, parameters: list[Parameter]
) -> list[list[Parameter]]:
    if groups is None:
        return []
    if isinstance(groups, int):
        if groups < 1:
            raise ValueError(
                "groups should be a non-negative integer or a list of list of torch.Tensor."
            )
        return [list(group) for group in split_list(parameters, groups) if group]
    seen: set[int] = set()
    members: list[Any] = list(itertools.chain.from_iterable(groups))
    for each in members:
        if not isinstance(each, torch.Tensor):
            raise ValueError("groups must consist of torch.Tensor.")
        if id(each) in seen:
            raise ValueError("A parameter can only appear once in groups.")
        seen.add(id(each))
    return [list(each) for each in groups]
