"""Gradients in one block of memory, cut into buckets of even size that are averaged separately."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.distributed.distributed_c10d import Work
from torch.nn import Parameter

from slipstream.torch.cuda.work import CudaWork
from slipstream.torch.process_group import SlipstreamProcessGroup


class Phase(enum.Enum):
    """Phase of a bucket in a training step."""

    IDLE = enum.auto()
    FILLING = enum.auto()
    REDUCING = enum.auto()
    REDUCED = enum.auto()


# A function from gradients to the device on which the codec's rounding errors are kept.
LossesOn = Callable[[torch.Tensor], torch.device]


def _device_of(tensor: torch.Tensor) -> torch.device:
    return tensor.device


class Gradients:
    """Memory for the gradients of parameters.

    The memory stays in place when it is cut into other buckets.

    Args:
        parameters: Parameters of one dtype, in the order in which gradients become ready.
        keeps_losses: Whether memory is also allocated for the codec's rounding errors, which error
            feedback adds to the next gradients.
        losses_on: Function that returns the device on which the rounding errors are stored
            (default: the device of the gradients).
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        keeps_losses: bool,
        losses_on: LossesOn = _device_of,
    ) -> None:
        sizes = [parameter.numel() for parameter in parameters]
        first = parameters[0]
        self.buffer = torch.zeros(sum(sizes), dtype=first.dtype, device=first.device)
        self.residual = (
            torch.zeros_like(self.buffer, device=losses_on(self.buffer)) if keeps_losses else None
        )
        parts = torch.split(self.buffer, sizes)
        self.views = {
            parameter: part.view_as(parameter)
            for parameter, part in zip(parameters, parts, strict=True)
        }

    def losses(self, parameter: Parameter) -> torch.Tensor:
        """Return the stored rounding errors of a parameter's gradient."""
        assert self.residual is not None, "without error feedback there is no memory for losses"
        begin, end = self.interval([parameter])
        return self.residual[begin:end].view_as(parameter)

    def interval(self, parameters: Sequence[Parameter]) -> tuple[int, int]:
        """Return the interval (begin, end) of the elements of successive parameters."""
        begin = int(self.views[parameters[0]].storage_offset())
        return begin, begin + sum(parameter.numel() for parameter in parameters)


class Bucket:
    """Successive parameters whose gradients are averaged together.

    Args:
        gradients: Memory that contains the bucket's gradients.
        parameters: Parameters of the bucket, in the order of their gradients in memory.
        priority: Priority on the network; buckets with a higher priority go first.
    """

    def __init__(
        self, gradients: Gradients, parameters: Sequence[Parameter], priority: int
    ) -> None:
        self.parameters = tuple(parameters)
        self.priority = priority
        self.phase = Phase.IDLE
        self.options: list[dict[str, Any]] | None = None  # parameter groups of the pending update
        self.dropped = False  # whether the user has zeroed the gradients since backward
        begin, end = gradients.interval(parameters)
        self.buffer = gradients.buffer[begin:end]
        self.residual = None if gradients.residual is None else gradients.residual[begin:end]
        self._views = {parameter: gradients.views[parameter] for parameter in parameters}
        self._missing: set[Parameter] = set(parameters)
        self._present: set[Parameter] = set()  # parameters that had a gradient in this step
        self._accumulating: set[Parameter] = set()  # their new gradients are added to the averages
        self._work: Work | None = None
        self._last_work: Work | None = None  # also after the bucket was finished

    @property
    def is_full(self) -> bool:
        """Whether the bucket has all gradients of the step and has not sent them yet."""
        return self.phase is Phase.FILLING and not self._missing

    @property
    def missing(self) -> set[Parameter]:
        """Parameters whose gradients are not in the bucket yet."""
        return self._missing

    def view(self, parameter: Parameter) -> torch.Tensor:
        """Return the memory of a parameter's gradient in the bucket."""
        return self._views[parameter]

    def fill(self, parameter: Parameter) -> None:
        """Move the gradient of a parameter, once autograd has computed it, into the bucket.

        On a GPU, autograd accumulates all gradients on one stream: the one on which the hooks of
        the parameters were installed.
        """
        self._begin()
        view, gradient = self._views[parameter], parameter.grad
        if gradient is None or gradient.data_ptr() == view.data_ptr():
            pass
        elif parameter in self._accumulating:
            view.add_(gradient)
        else:
            view.copy_(gradient)
        parameter.grad = None
        self._missing.discard(parameter)
        self._present.add(parameter)

    def fill_with_zeros(self) -> list[Parameter]:
        """Set missing gradients to zero; return the parameters without a gradient in this step."""
        self._begin()
        for parameter in self._missing - self._accumulating:
            self._views[parameter].zero_()
        self._missing = set()
        return [parameter for parameter in self.parameters if parameter not in self._present]

    def launch(self, group: SlipstreamProcessGroup, codec: str) -> None:
        """Begin to average the bucket's gradients over all ranks; does not block."""
        self._work = self._last_work = group.average_encoded(
            self.buffer, codec, self.residual, priority=self.priority
        )
        self.phase = Phase.REDUCING

    def is_done(self) -> bool:
        """Return whether the averages are complete; does not block."""
        return self._work is None or self._work.is_completed()

    def finish(self) -> None:
        """Block until the averages are complete; on a GPU the current stream waits instead."""
        if self._work is not None:
            self._work.wait()
            self._work = None
        if self.phase is Phase.REDUCING:
            self.phase = Phase.REDUCED

    def block(self) -> None:
        """Block the CPU until the engine uses neither gradients nor losses of the last launch."""
        if isinstance(self._last_work, CudaWork):
            self._last_work.block()
            self._last_work.release()  # a wait on another stream has not ordered this one
        self.finish()

    def expose(self, without: frozenset[Parameter]) -> None:
        """Set each parameter's gradient to its average, or to None for parameters in `without`."""
        for parameter, view in self._views.items():
            parameter.grad = None if parameter in without else view

    def hide(self) -> None:
        """Remove the gradients from the parameters."""
        for parameter in self.parameters:
            parameter.grad = None

    def _begin(self) -> None:
        """Begin to fill the bucket; gradients add up if no step followed the last backward pass."""
        if self.phase is Phase.FILLING:
            return
        accumulates = self.phase is not Phase.IDLE and not self.dropped
        self.finish()
        self._accumulating = set(self.parameters) if accumulates else set()
        self._missing = set(self.parameters)
        if not accumulates:
            self._present = set()
        self.phase, self.dropped = Phase.FILLING, False


def gradients_of(
    parameters: Iterable[Parameter], keeps_losses: bool, losses_on: LossesOn = _device_of
) -> list[Gradients]:
    """Return a `Gradients` for each dtype.

    A bucket has one dtype. Because parameters are first sorted by dtype, buckets need not end
    wherever the dtype changes from one parameter to the next.

    Args:
        parameters: Parameters in the order in which the forward pass uses them.
        keeps_losses: Whether float32 gradients get memory for error feedback; gradients of other
            dtypes are never encoded.
        losses_on: Function that returns the device of the memory for error feedback (default: the
            device of the gradients).
    """
    by_dtype: dict[torch.dtype, list[Parameter]] = {}
    for parameter in reversed(list(parameters)):
        by_dtype.setdefault(parameter.dtype, []).append(parameter)
    return [
        Gradients(members, keeps_losses and dtype == torch.float32, losses_on)
        for dtype, members in by_dtype.items()
    ]


def cut(
    parameters: Iterable[Parameter], bucket_bytes: int, first_bytes: int
) -> Iterator[list[Parameter]]:
    """Yield the parameters of each bucket; the buckets are about equal in size.

    Args:
        parameters: Parameters of one dtype, in the order in which gradients become ready.
        bucket_bytes: Approximate size of a bucket in bytes. A parameter that is larger than
            `bucket_bytes` has a bucket of its own.
        first_bytes: Approximate size of the first bucket in bytes. If the first bucket is small,
            communication begins early.
    """
    sizes = {p: p.numel() * p.element_size() for p in parameters}
    later_bytes = max(0, sum(sizes.values()) - first_bytes)
    even_bytes = later_bytes / max(1, round(later_bytes / bucket_bytes))
    wanted_bytes = float(first_bytes)
    current: list[Parameter] = []
    total = 0
    for parameter, size in sizes.items():
        # Close the bucket if its size is nearer to the wanted size without this parameter.
        if current and total + size / 2 > wanted_bytes:
            yield current
            current, total, wanted_bytes = [], 0, even_bytes
        current.append(parameter)
        total += size
    if current:
        yield current
