"""DistributedOptimizer: an optimizer whose step() waits until the gradients are reduced."""

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
from slipstream.horovod.names import OPTIMIZER, full_name
from slipstream.horovod.reductions import Adasum, Average, Reduction
from slipstream.horovod.torch.compression import Compression, Compressor
from slipstream.horovod.torch.ops import allreduce_async_
from slipstream.horovod.torch.reducer import Reducer, ReducerOptions

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
    """Return an optimizer for data-parallel training, with the state and parameters of `optimizer`.

    The returned optimizer's class derives from the class of `optimizer`. Each gradient is sent as
    soon as the backward pass has computed it; gradients of the first layers have priority. `step()`
    waits until all gradients are reduced. All ranks must pass the same arguments.

    Args:
        optimizer: Optimizer that updates the parameters.
        named_parameters: Pairs of names and parameters, as model.named_parameters() yields them,
            for all parameters of the optimizer (default: parameters are numbered).
        compression: Compression of gradients (default: none). Compression.fp16, bf16 and int8
            encode float32 between hosts only, and sum in float32.
        backward_passes_per_step: Number of backward passes whose gradients are summed before they
            are sent (default 1).
        op: Reduction: Average (default), Sum or Adasum. With Adasum, each rank makes a step with
            its own gradients, and then the changes of the parameters are reduced, without
            compression.
        gradient_predivide_factor: Number by which gradients are divided before they are averaged
            and by which the average is multiplied (default 1). A number other than 1 is allowed for
            Average only.
        num_groups: Horovod's older argument for a number of groups; `groups` replaces it.
        groups: Lists of parameters, or the number of equally long lists into which the parameters
            are divided. The gradients of a list are fused, and sent once all of them are ready
            (default: small gradients that are ready at the same time are fused).
        sparse_as_dense: Whether sparse gradients are converted to dense gradients before they are
            sent (default False).
        process_set: Process set whose ranks take part (default: all ranks).

    Raises:
        ValueError: Names are missing or not unique, or an argument is not allowed.
        NotImplementedError: Adasum was chosen with a process set.
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
    trainable = [parameter for parameter in names if parameter.requires_grad]
    grouped = _grouped(groups, trainable)
    if op == Adasum and job().world.size == 1 and not job().settings.may_grow:
        op = Average  # Adasum and Average are the same for one rank
    options = ReducerOptions(
        compression=compression,
        op=op,
        predivide=gradient_predivide_factor,
        sparse_as_dense=sparse_as_dense,
        process_set=process_set,
    )
    if op == Adasum and process_set is not global_process_set:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")
    if op == Adasum:
        return _derived(optimizer, _AdasumOptimizer, names)
    grows = job().settings.may_grow and process_set is global_process_set
    communicates = grows or (process_set.included() and queue_of(process_set).group.size > 1)
    reducer = Reducer(names if communicates else {}, grouped, backward_passes_per_step, options)
    return _derived(optimizer, _GradientOptimizer, names, reducer, options)


def _derived(optimizer: Optimizer, mixin: type[_Distributed], *arguments: Any) -> Any:
    """Return an optimizer with the same state and parameters; its class derives from a mixin.

    Args:
        optimizer: Optimizer whose class, state and parameters are used.
        mixin: Class whose methods replace those of the optimizer's class.
        arguments: Arguments for the mixin's connect().
    """
    kind: Any = type(type(optimizer).__name__, (mixin, type(optimizer)), {"__module__": __name__})
    derived = kind.__new__(kind)
    # A scheduler may have replaced the methods of the optimizer that was passed.
    replaced = ("step", "zero_grad")
    derived.__dict__.update((k, v) for k, v in vars(optimizer).items() if k not in replaced)
    derived.connect(*arguments)
    return derived


class _Distributed:
    """Mixin whose methods override those of the user's optimizer; connect() replaces __init__."""

    def _original(self, name: str) -> Callable[..., Any]:
        """Return a method of the class of the user's optimizer."""
        return getattr(super(), name)


class _GradientOptimizer(_Distributed):
    def connect(
        self, names: dict[Parameter, str], reducer: Reducer, options: ReducerOptions
    ) -> None:
        self._parameter_names = names  # Horovod's own tests read this attribute
        self._reducer = reducer
        self.op, self.process_set = options.op, options.process_set
        self.gradient_predivide_factor = options.predivide
        self.sparse_as_dense = options.sparse_as_dense
        self._synchronized = False
        self._should_synchronize = True

    @property
    def backward_passes_per_step(self) -> int:
        """Number of backward passes whose gradients are summed before they are sent."""
        return self._reducer.passes

    @backward_passes_per_step.setter
    def backward_passes_per_step(self, passes: int) -> None:
        self._reducer.passes = passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Set the number of backward passes whose gradients are summed before they are sent."""
        self.backward_passes_per_step = passes

    def synchronize(self) -> None:
        """Block until the gradients are reduced. After synchronize(), gradients may be clipped."""
        self._reducer.synchronize()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Generator[None]:
        """Make step() not wait within this context, because the script has called synchronize()."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Wait until the gradients are reduced, and update the parameters."""
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(_NO_SKIP, stacklevel=2)
            self.synchronize()
        self._synchronized = False
        return self._original("step")(closure and self._synchronizing(closure))

    def _synchronizing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return a closure that calls `closure` and waits until the gradients are reduced."""

        def call() -> Any:
            with torch.enable_grad():
                loss = closure()
            self._reducer.synchronize()
            return loss

        return call

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Reset the gradients.

        Raises:
            AssertionError: Gradients are still being reduced.
        """
        if not self._reducer.is_idle:
            raise AssertionError(_ZEROED_EARLY)
        self._original("zero_grad")(*args, **kwargs)

    def forget_gradients(self) -> None:
        """Forget the gradients that are being reduced."""
        self._reducer.reset()
        self._synchronized, self._should_synchronize = False, True

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Load a state, and forget the gradients that are being reduced."""
        self.forget_gradients()
        self._original("load_state_dict")(*args, **kwargs)


class _AdasumOptimizer(_Distributed):
    def connect(self, names: dict[Parameter, str]) -> None:
        self._parameter_names = names
        self.op, self.backward_passes_per_step = Adasum, 1

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Store a number of passes, without effect: gradients add up until step() is called."""
        self.backward_passes_per_step = passes

    def synchronize(self) -> None:
        """Do nothing, because step() itself reduces the changes of the parameters."""

    @contextmanager
    def skip_synchronize(self) -> Generator[None]:
        """Raise an error, because synchronize() does nothing that a context could skip."""
        raise AssertionError(
            "Skipping synchronization is not supported when using Adasum optimizer."
        )
        yield

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make a step with this rank's gradients, and reduce the changes of the parameters."""
        names = self._parameter_names
        before = {p: p.detach().clone() for p in names if p.requires_grad}
        result = self._original("step")(closure)
        with torch.no_grad():
            changes = {p: p.detach() - old_value for p, old_value in before.items()}
            handles = [
                allreduce_async_(change, name=names[parameter], op=Adasum)
                for parameter, change in changes.items()
            ]
            for handle in handles:
                handle.wait()
            for parameter, old_value in before.items():
                parameter.copy_(old_value + changes[parameter])
        return result


# PyTorch wraps a step() without this mark, and the wrapper would call the hooks a second time.
for _kind in (_GradientOptimizer, _AdasumOptimizer):
    _step: Any = _kind.step
    _step.hooked = True


def _names(
    optimizer: Optimizer, named_parameters: Iterable[tuple[str, Parameter]] | None, prefix: str
) -> dict[Parameter, str]:
    """Return names for the optimizer's parameters: the given names, or `prefix` and a number."""
    parameters: list[Parameter] = [p for group in optimizer.param_groups for p in group["params"]]
    if named_parameters is None:
        return {parameter: f"{prefix}.{i}" for i, parameter in enumerate(parameters)}
    named: list[Any] = list(named_parameters)
    if not all(isinstance(pair, tuple) for pair in named):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced by"
            " model.named_parameters()."
        )
    all_names = [name for name, _ in named]
    if duplicates := sorted({name for name in all_names if all_names.count(name) > 1}):
        raise ValueError(
            "Parameter names in named_parameters must be unique. Found duplicates:"
            f" {', '.join(duplicates)}"
        )
    names: dict[Parameter, str] = {parameter: name for name, parameter in named}
    if missing := [str(id(parameter)) for parameter in parameters if parameter not in names]:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named."
            f" Python object ids: {', '.join(missing)}"
        )
    return {parameter: names[parameter] for parameter in parameters}


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
    for member in members:
        if not isinstance(member, torch.Tensor):
            raise ValueError("groups must consist of torch.Tensor.")
        if id(member) in seen:
            raise ValueError("A parameter can only appear once in groups.")
        seen.add(id(member))
    return [list(group) for group in groups]
