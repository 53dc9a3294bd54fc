"""Gradients in one memory, and its cuts into even buckets, each of which is averaged as a whole."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.nn import Parameter

from slipstream.torch.process_group import SlipstreamProcessGroup
from slipstream.torch.work import SlipstreamWork


class Phase(enum.Enum):
    """Where a bucket is in the life of a step."""

    IDLE = enum.auto()
    FILLING = enum.auto()
    REDUCING = enum.auto()
    REDUCED = enum.auto()


class Gradients:
    """One memory for the gradients of parameters. It stays where it is however it is cut.

    Args:
        parameters: Parameters of one dtype, in the order in which gradients become ready.
        keeps_losses: Whether there is memory for the error feedback of a codec.
    """

    def __init__(self, parameters: Sequence[Parameter], keeps_losses: bool) -> None:
        sizes = [parameter.numel() for parameter in parameters]
        self.buffer = torch.zeros(sum(sizes), dtype=parameters[0].dtype)
        self.residual = torch.zeros_like(self.buffer) if keeps_losses else None
        parts = torch.split(self.buffer, sizes)
        self.views = {
            parameter: part.view_as(parameter)
            for parameter, part in zip(parameters, parts, strict=True)
        }

    def losses(self, parameter: Parameter) -> torch.Tensor:
        """Return what a codec has lost of the parameter's gradient so far."""
        assert self.residual is not None, "without error feedback nothing is kept"
        begin, end = self.place([parameter])
        return self.residual[begin:end].view_as(parameter)

    def place(self, parameters: Sequence[Parameter]) -> tuple[int, int]:
        """Return the first element of some successive parameters, and the one behind the last."""
        begin = int(self.views[parameters[0]].storage_offset())
        return begin, begin + sum(parameter.numel() for parameter in parameters)


class Bucket:
    """Successive parameters, whose gradients are averaged together.

    Args:
        gradients: Memory of which the bucket is a part.
        parameters: Successive parameters of that memory, in the same order.
        priority: Priority on the network; a higher one goes first.
    """

    def __init__(
        self, gradients: Gradients, parameters: Sequence[Parameter], priority: int
    ) -> None:
        self.parameters = tuple(parameters)
        self.priority = priority
        self.phase = Phase.IDLE
        self.options: list[dict[str, Any]] | None = None  # of the step that is due
        self.dropped = False  # the user has zeroed the gradients since
        begin, end = gradients.place(parameters)
        self.buffer = gradients.buffer[begin:end]
        self.residual = None if gradients.residual is None else gradients.residual[begin:end]
        self._views = {parameter: gradients.views[parameter] for parameter in parameters}
        self._missing: set[Parameter] = set(parameters)
        self._present: set[Parameter] = set()  # that had a gradient in this step
        self._kept: set[Parameter] = set()  # whose averages new gradients are added to
        self._work: SlipstreamWork | None = None

    @property
    def is_full(self) -> bool:
        """Whether all gradients are there and none has been sent."""
        return self.phase is Phase.FILLING and not self._missing

    @property
    def missing(self) -> set[Parameter]:
        """Parameters whose gradients are not there."""
        return self._missing

    def view(self, parameter: Parameter) -> torch.Tensor:
        """Return where the parameter's gradient is."""
        return self._views[parameter]

    def fill(self, parameter: Parameter) -> None:
        """Take the gradient that autograd has left at the parameter."""
        self._begin()
        view, gradient = self._views[parameter], parameter.grad
        if gradient is None or gradient.data_ptr() == view.data_ptr():
            pass
        elif parameter in self._kept:
            view.add_(gradient)
        else:
            view.copy_(gradient)
        parameter.grad = None
        self._missing.discard(parameter)
        self._present.add(parameter)

    def fill_with_zeros(self) -> list[Parameter]:
        """Complete the bucket and return the parameters that had no gradient in this step."""
        self._begin()
        for each in self._missing - self._kept:
            self._views[each].zero_()
        self._missing = set()
        return [each for each in self.parameters if each not in self._present]

    def launch(self, group: SlipstreamProcessGroup, codec: str) -> None:
        """Begin the averaging; does not block."""
        self._work = group.average_encoded(
            self.buffer, codec, self.residual, priority=self.priority
        )
        self.phase = Phase.REDUCING

    def is_done(self) -> bool:
        """Return whether the averages are there; does not block."""
        return self._work is None or self._work.is_completed()

    def finish(self) -> None:
        """Block until the averages are there."""
        if self._work is not None:
            self._work.wait()
            self._work = None
        if self.phase is Phase.REDUCING:
            self.phase = Phase.REDUCED

    def expose(self, without: frozenset[Parameter]) -> None:
        """Make the averages the gradients of all parameters but some."""
        for parameter, view in self._views.items():
            parameter.grad = None if parameter in without else view

    def hide(self) -> None:
        """Remove the gradients from the parameters."""
        for parameter in self.parameters:
            parameter.grad = None

    def _begin(self) -> None:
        """Begin to fill. After a backward pass without a step gradients add up, as anywhere."""
        if self.phase is Phase.FILLING:
            return
        again = self.phase is not Phase.IDLE and not self.dropped
        self.finish()
        self._kept = set(self.parameters) if again else set()
        self._missing = set(self.parameters)
        if not again:
            self._present = set()
        self.phase, self.dropped = Phase.FILLING, False


def gradients_of(parameters: Iterable[Parameter], keeps_losses: bool) -> list[Gradients]:
    """Return the memory of each dtype; one that is only now and then used does not split others.

    Args:
        parameters: Parameters in forward order.
        keeps_losses: Whether float32 gradients, which alone are encoded, get memory for error
            feedback.
    """
    by_dtype: dict[torch.dtype, list[Parameter]] = {}
    for parameter in reversed(list(parameters)):
        by_dtype.setdefault(parameter.dtype, []).append(parameter)
    return [
        Gradients(same, keeps_losses and dtype == torch.float32) for dtype, same in by_dtype.items()
    ]


def cut(
    parameters: Iterable[Parameter], bucket_bytes: int, first_bytes: int
) -> Iterator[list[Parameter]]:
    """Yield the parameters of one bucket after the other, of even sizes.

    Args:
        parameters: Parameters of one dtype, in the order in which gradients become ready.
        bucket_bytes: Approximate size of a bucket. A larger parameter has a bucket of its own.
        first_bytes: Approximate size of the first bucket; a small one lets communication begin
            early.
    """
    sizes = {each: each.numel() * each.element_size() for each in parameters}
    rest = max(0, sum(sizes.values()) - first_bytes)
    even = rest / max(1, round(rest / bucket_bytes))
    full = float(first_bytes)
    current: list[Parameter] = []
    total = 0
    for parameter, size in sizes.items():
        # Closed where that comes nearer to an even size than taking the next one in as well.
        if current and total + size / 2 > full:
            yield current
            current, total, full = [], 0, even
        current.append(parameter)
        total += size
    if current:
        yield current
