"""The state of training in PyTorch, with copies of models and optimizers in the host's memory."""

from __future__ import annotations

from typing import Any

from slipstream.horovod.common.basics import rank
from slipstream.horovod.common.elastic import ObjectState
from slipstream.horovod.objects import broadcast_object
from slipstream.horovod.torch.elastic.handlers import (
    REGISTRY,
    CopyingHandler,
    HandlerRegistry,
    SamplerStateHandler,
    StateHandler,
)

_registry: HandlerRegistry = REGISTRY


class TorchState(ObjectState):
    """State of training in PyTorch.

    All arguments become attributes. Models, optimizers, schedulers of learning rates and samplers
    of type `ElasticSampler` are copied to the memory of the host at each commit; every other value
    is copied deeply. Two commits are kept, because a fault may find some ranks after a commit that
    others have not reached.

    Args:
        model: Model, or None.
        optimizer: Optimizer, or None.
        kwargs: Further values by name.
    """

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        values = {**kwargs, "model": model, "optimizer": optimizer}
        self._handlers: dict[str, StateHandler] = {}
        self._noted: tuple[list[Any], Any, dict[str, Any]] | None = None
        for name, value in values.items():
            handler = _handler_for(value)
            if handler is not None:
                self._handlers[name] = handler
                object.__setattr__(self, name, value)
        plain = {name: value for name, value in values.items() if name not in self._handlers}
        super().__init__(broadcast_object, rank, **plain)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a model or optimizer that takes another's place is kept at once."""
        super().__setattr__(name, value)
        handler = self.__dict__.get("_handlers", {}).get(name)
        if handler is None:
            return
        handler.set_value(value)
        if isinstance(handler, CopyingHandler):
            for kept in self._kept.values():
                kept[1][name] = handler.capture()

    @property
    def keeps_two_commits(self) -> bool:
        """Whether all ranks can go back to the same commit without sync().

        Handlers that a script has added keep one commit only.
        """
        return all(isinstance(handler, CopyingHandler) for handler in self._handlers.values())

    def capture(self) -> Any:
        """Return copies of the values, and of the states of models and optimizers."""
        states: dict[str, Any] = {}
        for name, handler in self._handlers.items():
            if isinstance(handler, CopyingHandler):
                states[name] = handler.capture()
            else:
                handler.save()
        return super().capture(), states

    def apply(self, captured: Any) -> None:
        """Set the values, models and optimizers to captured ones."""
        values, states = captured
        for name, handler in self._handlers.items():
            if isinstance(handler, CopyingHandler):
                handler.apply(states[name])
            else:
                handler.restore()
        super().apply(values)

    def note(self) -> None:
        """Take note of the versions of parameters and optimizers, and copy all that is small."""
        small = {name: handler.capture_small() for name, handler in self._copying_handlers()}
        self._noted = self._traces(), super().capture(), small

    def is_as_noted(self) -> bool:
        """Return whether no step has changed the models and optimizers since note()."""
        return (
            self.keeps_two_commits and self._noted is not None and self._noted[0] == self._traces()
        )

    def return_to_note(self) -> None:
        """Set all values, buffers of models and options of optimizers to those at note().

        The forward pass may have changed statistics before the fault, and a scheduler may have
        made its step, which changes learning rates.
        """
        assert self._noted is not None, "is_as_noted() was true"
        _, values, small = self._noted
        for name, handler in self._copying_handlers():
            handler.apply_small(small[name])
        super().apply(values)

    def _traces(self) -> list[Any]:
        return [handler.trace() for handler in self._handlers.values()]

    def _copying_handlers(self) -> list[tuple[str, CopyingHandler]]:
        items = self._handlers.items()
        return [(name, handler) for name, handler in items if isinstance(handler, CopyingHandler)]

    def share(self) -> None:
        """Give the values, models and optimizers of rank 0 to all ranks."""
        for handler in self._handlers.values():
            handler.sync()
        super().share()

    def on_reset(self) -> None:
        """Divide samples among the new ranks, and call the functions for changes."""
        for handler in self._handlers.values():
            if isinstance(handler, SamplerStateHandler):
                handler.value.reset()
        super().on_reset()


def get_handler_registry() -> HandlerRegistry:
    """Return the list of types and of the handlers that keep and send their values."""
    return _registry


def set_handler_registry(registry: HandlerRegistry) -> None:
    """Replace the list of types and handlers, for states that are made from now on.

    Args:
        registry: Pairs of a type and a class of handlers; the first type that fits counts.
    """
    global _registry
    _registry = registry


def _handler_for(value: Any) -> StateHandler | None:
    for kind, handler in _registry:
        if isinstance(value, kind):
            return handler(value)
    return None
