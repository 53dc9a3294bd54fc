"""One forward and backward pass of a module on fake tensors, which have no memory."""

# PyTorch's hooks are not typed.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.module_tracker import ModuleTracker

from slipstream.errors import UsageError
from slipstream.forecast.garbage import rare_collections
from slipstream.forecast.trace.conversion import conversions
from slipstream.forecast.trace.recorder import Recorder, tensors_in
from slipstream.forecast.work.workload import TrainedParameter, TrainingPhase, Workload


@rare_collections()
def trace(
    make: Callable[[], torch.nn.Module],
    inputs: Callable[[], Sequence[Any]],
    *,
    name: str,
    samples: int,
    autocast: torch.dtype | None = None,
    dtype: torch.dtype | None = None,
) -> Workload:
    """Run a model forward and backward without memory or arithmetic, and return its workload.

    The call blocks for some milliseconds per operator.

    Args:
        make: Function that makes the module; the weights of the module take no memory.
        inputs: Function that makes the arguments with which the module is called.
        name: Human-readable name of the model.
        samples: Number of samples in the arguments that `inputs` makes.
        autocast: Dtype of mixed precision (default None: no autocast).
        dtype: Dtype of the module's parameters (default None: the dtype that `make` gives them).

    Raises:
        UsageError: No output of the model has a gradient.
    """
    with FakeTensorMode(allow_non_fake_inputs=True):
        with _default(dtype), conversions():
            module = make().train()
        arguments = tuple(inputs())
        modules = ModuleTracker()
        recorder = Recorder(modules)
        for tensor in (*module.parameters(), *module.buffers(), *tensors_in(arguments)):
            recorder.value(tensor)
        ready = _watch(module, recorder)
        with modules, recorder, _precision(autocast):
            _run(module, arguments, recorder, name)
        operators = tuple(recorder.operators)
        parameters = tuple(
            TrainedParameter(
                name=key,
                elements=parameter.numel(),
                num_bytes=parameter.numel() * parameter.element_size(),
                ready=ready.get(key, -1),
                value=recorder.value(parameter),
            )
            for key, parameter in module.named_parameters()
        )
        buffers = sum(x.numel() * x.element_size() for x in module.buffers())
        return Workload(
            name=name,
            samples=samples,
            operators=operators,
            values=recorder.values(),
            parameters=parameters,
            buffer_bytes=buffers,
        )


def _run(
    module: torch.nn.Module, arguments: tuple[Any, ...], recorder: Recorder, name: str
) -> None:
    """Run the module, and compute the gradients of the sum of all its outputs."""
    outputs = [x for x in tensors_in(module(*arguments)) if x.requires_grad]
    if not outputs:
        raise UsageError(f"{name} returns nothing that has a gradient, so it cannot be trained")
    recorder.phase = TrainingPhase.BACKWARD
    torch.autograd.backward(outputs, [torch.ones_like(x) for x in outputs])


def _watch(module: torch.nn.Module, recorder: Recorder) -> dict[str, int]:
    """Return a dict that the backward pass fills.

    The dict maps the name of a parameter to the index of the operator that completes the
    parameter's gradient.
    """
    ready: dict[str, int] = {}
    for key, parameter in module.named_parameters():
        if parameter.requires_grad:

            def note(_: torch.Tensor, key: str = key) -> None:
                ready[key] = len(recorder.operators) - 1

            parameter.register_post_accumulate_grad_hook(note)
    return ready


@contextlib.contextmanager
def _default(dtype: torch.dtype | None) -> Generator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _precision(autocast: torch.dtype | None) -> contextlib.AbstractContextManager[Any]:
    return contextlib.nullcontext() if autocast is None else torch.autocast("cpu", autocast)
