"""Parameters that block code which reads them until the value or gradient is up to date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

import torch
from torch.nn import Parameter

_OWNER = "_slipstream_overlap"

# Access to these attributes waits for the gradient or the value. All other attributes, which only
# describe the parameter, and the functions in _DESCRIPTIONS do not wait.
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
    """The interface of the object that brings parameters up to date."""

    def settle_value(self, parameter: Parameter) -> None:
        """Block until the last step has updated the parameter."""
        ...

    def settle_gradient(self, parameter: Parameter) -> None:
        """Block until the parameter has its averaged gradient."""
        ...


class WaitingParameter(Parameter):
    """Parameter whose `__torch_function__` PyTorch calls when the parameter is read.

    A copy of a `WaitingParameter` does not wait.
    """

    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Wait for the parameters among the arguments, and then call a function of PyTorch."""
        with torch._C.DisableTorchFunctionSubclass():  # pyright: ignore[reportPrivateUsage]
            name = getattr(func, "__name__", "")
            if name in ("__get__", "__set__"):
                _settle_attribute(func, args[0])
            elif name not in _DESCRIPTIONS:
                for parameter in _waiting((args, tuple(kwargs.values()) if kwargs else ())):
                    _owner(parameter).settle_value(parameter)
            return func(*args, **(kwargs or {}))


def wait_when_read(parameter: Parameter, owner: Owner) -> None:
    """Make a parameter call its owner, which may block, when the parameter is read.

    The parameter stays the same object, but its class changes.

    A parameter of a subclass of Parameter is not changed; only the forward pass of its module waits
    for its value.
    """
    if type(parameter) is Parameter:
        _change_class(parameter, WaitingParameter)
        setattr(parameter, _OWNER, owner)


def no_longer_wait(parameter: Parameter) -> None:
    """Turn a waiting parameter into an ordinary parameter again."""
    if type(parameter) is WaitingParameter:
        with torch._C.DisableTorchFunctionSubclass():  # pyright: ignore[reportPrivateUsage]
            _change_class(parameter, Parameter)
            delattr(parameter, _OWNER)


def _change_class(parameter: Any, kind: type[Parameter]) -> None:
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
