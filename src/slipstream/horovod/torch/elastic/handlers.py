"""Handlers, each of which keeps and sends the state of one object of PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

import torch

from slipstream.horovod.objects import broadcast_object
from slipstream.horovod.torch.elastic.sampler import ElasticSampler
from slipstream.horovod.torch.functions import broadcast_optimizer_state, broadcast_parameters


class StateHandler:
    """Keeper of the state of one object.

    Args:
        value: Object whose state is kept.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Keep the present state."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to the state of the last save()."""
        raise NotImplementedError

    def sync(self) -> None:
        """Give the state of rank 0 to all ranks, which call this method together."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Keep the state of another object from now on."""
        self.value = value
        self.save()

    def trace(self) -> Any:
        """Return a value that differs as soon as a training step has changed large tensors.

        The default is None, because most objects have none.
        """
        return None


class CopyingHandler(StateHandler):
    """Keeper of an object whose state can be copied to the memory of the host."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._saved = self.capture()

    def capture(self) -> Any:
        """Return a copy of the state, in the memory of the host."""
        return _copied(self.value.state_dict())

    def apply(self, captured: Any) -> None:
        """Set the state to one that capture() has returned."""
        self.value.load_state_dict(captured)

    def capture_small(self) -> Any:
        """Return a copy of all that a step may change without changing trace()."""
        return self.capture()

    def apply_small(self, captured: Any) -> None:
        """Set what capture_small() has returned."""
        self.apply(captured)

    def save(self) -> None:
        """Keep the present state."""
        self._saved = self.capture()

    def restore(self) -> None:
        """Go back to the state of the last save()."""
        self.apply(self._saved)

    def sync(self) -> None:
        """Give the state of rank 0 to all ranks."""
        self.value.load_state_dict(broadcast_object(self.value.state_dict()))


class ModelStateHandler(CopyingHandler):
    """Keeper of a module's parameters and buffers."""

    def sync(self) -> None:
        """Give the parameters and buffers of rank 0 to all ranks."""
        broadcast_parameters(self.value.state_dict(), root_rank=0)

    def trace(self) -> Any:
        """Return the versions of parameters, which PyTorch counts, and the shapes of buffers."""
        versions = [(id(each), each._version) for each in self.value.parameters()]
        return versions, [(name, each.shape) for name, each in self.value.named_buffers()]

    def capture_small(self) -> Any:
        """Return copies of the buffers, which a forward pass changes (batch normalization)."""
        return {name: each.detach().clone() for name, each in self.value.named_buffers()}

    @torch.no_grad()
    def apply_small(self, captured: Any) -> None:
        """Set the buffers to those that capture_small() has returned."""
        for name, each in self.value.named_buffers():
            each.copy_(captured[name])


class OptimizerStateHandler(CopyingHandler):
    """Keeper of an optimizer's state and options."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._num_steps = 0
        self._count_steps()

    def set_value(self, value: Any) -> None:
        """Keep the state of another optimizer from now on."""
        super().set_value(value)
        self._num_steps += 1
        self._count_steps()

    def forget_gradients(self) -> None:
        """Forget gradients in flight, which a DistributedOptimizer has."""
        forget = getattr(self.value, "forget_gradients", None)
        if forget is not None:
            forget()

    def trace(self) -> Any:
        """Return the number of steps; fused ones do not change the versions of parameters."""
        return self._num_steps, len(self.value.param_groups)

    def capture_small(self) -> Any:
        """Return copies of the options of each group of parameters, such as the learning rate."""
        groups: list[dict[str, Any]] = self.value.param_groups
        return [
            {name: copy.deepcopy(option) for name, option in group.items() if name != "params"}
            for group in groups
        ]

    def apply_small(self, captured: Any) -> None:
        """Set the options of each group to copies, and forget gradients in flight."""
        for group, kept in zip(self.value.param_groups, captured, strict=True):
            group.update(copy.deepcopy(kept))
        self.forget_gradients()

    def _count_steps(self) -> None:
        def count(*_: Any) -> None:
            self._num_steps += 1

        self.value.register_step_post_hook(count)

    def apply(self, captured: Any) -> None:
        """Set the state to a captured one, of which the optimizer gets its own copy."""
        self.value.load_state_dict(copy.deepcopy(captured))

    def sync(self) -> None:
        """Give the state and the options of rank 0 to all ranks, and forget gradients in flight."""
        self.forget_gradients()
        broadcast_optimizer_state(self.value, root_rank=0)


class SchedulerStateHandler(CopyingHandler):
    """Keeper of the state of a scheduler of learning rates."""


class ScalerStateHandler(CopyingHandler):
    """Keeper of the scale of a `GradScaler`, which forgets a step that a fault has interrupted.

    A scaler divides the gradients of an optimizer once between two updates. After a fault in
    between, it would take the gradients of the next step for divided ones.
    """

    def apply(self, captured: Any) -> None:
        """Set the scale to a captured one."""
        super().apply(captured)
        self._forget_step()

    def sync(self) -> None:
        """Give the scale of rank 0 to all ranks."""
        super().sync()
        self._forget_step()

    def _forget_step(self) -> None:
        if self.value.is_enabled():
            self.value._per_optimizer_states.clear()  # PyTorch has no name for it


class SamplerStateHandler(CopyingHandler):
    """Keeper of the position of an `ElasticSampler`."""


HandlerRegistry = list[tuple[Any, type[StateHandler]]]

REGISTRY: HandlerRegistry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (torch.optim.lr_scheduler.LRScheduler, SchedulerStateHandler),
    (torch.amp.GradScaler, ScalerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def _copied(value: Any) -> Any:
    """Return a deep copy of a state, with all tensors in the memory of the host."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {key: _copied(item) for key, item in items}
    if type(value) in (list, tuple):
        return type(value)(_copied(item) for item in value)
    return copy.deepcopy(value)
