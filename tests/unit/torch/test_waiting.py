"""Parameters that wait when their value or gradient is read, and not when they are described."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import Parameter  # noqa: E402

from slipstream.torch.waiting import (  # noqa: E402
    WaitingParameter,
    no_longer_wait,
    wait_when_read,
)


class Owner:
    """Notes what is waited for."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def settle_value(self, parameter: Parameter) -> None:
        self.seen.append("value")

    def settle_gradient(self, parameter: Parameter) -> None:
        self.seen.append("gradient")


@pytest.mark.parametrize(
    ("read", "seen"),
    [
        (lambda p: p.grad, ["gradient"]),
        (lambda p: setattr(p, "grad", None), []),
        (lambda p: p.data, ["value"]),
        (lambda p: setattr(p, "data", torch.ones(2, 2)), ["value"]),
        (lambda p: (p.T, p.mT, p.H, p.mH, p.real), ["value"] * 5),
        (lambda p: (p.shape, p.dtype, p.requires_grad, p.is_leaf, p.device), []),
        (lambda p: (p.size(), p.numel(), p.nelement(), p.dim(), p.ndimension()), []),
        (lambda p: (p.stride(), p.element_size(), p.is_contiguous(), p.storage_offset()), []),
        (lambda p: (p.is_complex(), p.is_floating_point(), hash(p), len(p)), []),
        (lambda p: p.requires_grad_(True), []),
        (lambda p: p.register_hook(lambda _: None), []),
        (lambda p: p.register_post_accumulate_grad_hook(lambda _: None), []),
        (lambda p: p + 1, ["value"]),
        (lambda p: p.sum().item(), ["value"]),
        (lambda p: torch.cat([p, p.detach()]), ["value", "value"]),
        (lambda p: torch.add(torch.ones(2, 2), other=p), ["value"]),
        (lambda p: torch.stack(tensors=[p]), ["value"]),
    ],
)
def test_who_reads_waits_and_who_describes_does_not(
    read: Callable[[Any], object], seen: list[str]
) -> None:
    parameter, owner = Parameter(torch.zeros(2, 2)), Owner()
    wait_when_read(parameter, owner)
    read(parameter)
    assert owner.seen == seen


def test_a_parameter_stays_the_same_object_and_is_ordinary_again() -> None:
    parameter, owner = Parameter(torch.zeros(2)), Owner()
    wait_when_read(parameter, owner)
    assert type(parameter) is WaitingParameter
    no_longer_wait(parameter)
    no_longer_wait(parameter)
    assert type(parameter) is Parameter
    assert (parameter + 1).tolist() == [1, 1]
    assert "_slipstream_overlap" not in vars(parameter)
    assert owner.seen == []


def test_a_class_of_ones_own_is_left_alone() -> None:
    class Own(Parameter):
        pass

    parameter, owner = Own(torch.zeros(2)), Owner()
    wait_when_read(parameter, owner)
    assert type(parameter) is Own
    _ = parameter + 1
    assert owner.seen == []


def test_a_copy_does_not_wait() -> None:
    parameter, owner = Parameter(torch.zeros(2)), Owner()
    wait_when_read(parameter, owner)
    copied = parameter.clone()
    owner.seen.clear()
    _ = copied + 1
    assert owner.seen == []
