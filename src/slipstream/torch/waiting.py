"""Parameters that wait, when their value or gradient is read, until it is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

import torch
from torch.nn import Parameter

_OWNER = "_slipstream_overlap"

# Attributes that are more than a description; another one does not wait.
_GRADIENT: Any = vars(torch._C.TensorBase)["grad"].__get__  # pyright: ignore[reportPrivateUsage]
_READ = ("data", "T", "mT", "H", "mH", "real", "imag")
_VALUES: tuple[Any, ...] = (
    *(getattr(torch.Tensor, name).__get__ for name in _READ),
    vars(torch._C.TensorBase)["data"].__set__,  # pyright: ignore[reportPrivateUsage]
)
_DESCRIPTIONS = frozenset(
    {"size", "numel", "nelement", "dim", "ndimension", "stride", "element_size", "is_contiguous"}
    | {"is_complex", "is_floating_point", "storage_offset", "register_hook"}
    | {"register_post_accumulate_grad_hook", "requires_grad_", "__hash__", "__len__"}
)


class Owner(Protocol):
    """Who knows what a parameter waits for."""

    def settle_value(self, parameter: Parameter) -> None:
        """Block until the parameter has the value of the last step."""
        ...

    def settle_gradient(self, parameter: Parameter) -> None:
        """Block until the parameter has its gradient."""
        ...


class WaitingParameter(Parameter):
    """A parameter as any other, but that PyTorch tells it when it is read.

    A copy of one does not wait.
    """

    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Wait for the parameters among the arguments, then do what was asked."""
        with torch._C.DisableTorchFunctionSubclass():  # pyright: ignore[reportPrivateUsage]
            name = getattr(func, "__name__", "")
            if name in ("__get__", "__set__"):
                _settle_attribute(func, args[0])
            elif name not in _DESCRIPTIONS:
                for each in _waiting((args, tuple(kwargs.values()) if kwargs else ())):
                    _owner(each).settle_value(each)
            return func(*args, **(kwargs or {}))


def wait_when_read(parameter: Parameter, owner: Owner) -> None:
    """Make a parameter wait for its owner; it stays the same object.

    Parameters that are of a class of their own stay so: they wait in front of their module only.
    """
    if type(parameter) is Parameter:
        _become(parameter, WaitingParameter)
        setattr(parameter, _OWNER, owner)


def no_longer_wait(parameter: Parameter) -> None:
    """Make it an ordinary parameter again."""
    if type(parameter) is WaitingParameter:
        with torch._C.DisableTorchFunctionSubclass():  # pyright: ignore[reportPrivateUsage]
            _become(parameter, Parameter)
            delattr(parameter, _OWNER)


def _become(parameter: Any, kind: type[Parameter]) -> None:
    parameter.__class__ = kind


def _settle_attribute(func: Any, parameter: Any) -> None:
    owner = parameter.__dict__.get(_OWNER) if isinstance(parameter, WaitingParameter) else None
    if owner is None:
        return
    if func == _GRADIENT:
        owner.settle_gradient(parameter)
    elif func in _VALUES:
        owner.settle_value(parameter)


def _owner(parameter: WaitingParameter) -> Owner:
    return parameter.__dict__[_OWNER]


def _waiting(values: Any) -> Iterator[WaitingParameter]:
    for value in values:
        if isinstance(value, WaitingParameter):
            if _OWNER in value.__dict__:
                yield value
        elif isinstance(value, (tuple, list)):
            yield from _waiting(cast("Sequence[Any]", value))
