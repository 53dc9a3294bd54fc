"""Trains a model for some steps on the device at hand, as the forecast takes it to be trained.

What is read is made up: numbers from a normal distribution, integers of 0 and 1, which every table
has. Convolutions in 16 bits have channels last, the optimizer is one kernel (`fused`), the loss is
the sum of what the model returns.
"""

# PyTorch's stubs leave some of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import statistics
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from slipstream.bench.forecast.device import Tell, tf32
from slipstream.forecast.simulate.job import Precision
from slipstream.forecast.trace.architectures.names import Architecture
from slipstream.forecast.trace.precision import DTYPES
from slipstream.forecast.trace.recorder import tensors_in
from slipstream.forecast.work.strategy import Optimizer

# The first step has no optimizer states; libraries choose kernels in the first ones.
_WARMUP = 3
_LEAST_ROUNDS = 5
_TRIFLING_RATE = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """Settings of the training of a model on one device.

    Args:
        made: Architecture that makes the module and a batch.
        micro_batch: samples that run at once.
        micro_batches: Micro-batches of a step (default 1).
        precision: Precision of matrix products.
        whole: Whether all of the module is in 16 bits and the optimizer updates fp32 copies.
        optimizer: Optimizer of the parameters.
    """

    made: Architecture
    micro_batch: int
    micro_batches: int = 1
    precision: Precision = "fp32"
    whole: bool = False
    optimizer: Optimizer = Optimizer.ADAM


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Measured steps.

    Args:
        count: Number of timed steps.
        seconds: Seconds of one step, the median of the rounds.
        low: seconds of one in the fastest round.
        high: seconds of one in the slowest round.
        memory: bytes of the device that its other users could not have, at the most, with the
            context; None: it is a processor.
    """

    count: int
    seconds: float
    low: float
    high: float
    memory: int | None


def train(training: TrainingSetup, tell: Tell, *, seconds: float = 10.0) -> Steps:
    """Train on a GPU where there is one, else on the processors, and block for about `seconds`.

    Args:
        training: Model and settings of the training.
        tell: is told what is done next.
        seconds: Seconds of timed steps; at least five rounds run.

    Raises:
        torch.OutOfMemoryError: it does not fit on the device.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tell(f"making {training.made.name}")
    with tf32(training.precision == "tf32"):
        trainee = _Trainee(training, device)
        tell("first steps")
        for _ in range(_WARMUP):
            trainee.step()
        tell("timed steps")
        count, rounds = trainee.timed(seconds)
    memory = None
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info()
        memory = total - free
    return Steps(
        count=count,
        seconds=statistics.median(rounds),
        low=min(rounds),
        high=max(rounds),
        memory=memory,
    )


class _Trainee:
    """A model in training.

    Args:
        training: Model and settings of the training.
        device: Device of the training.
    """

    def __init__(self, training: TrainingSetup, device: torch.device) -> None:
        self._training = training
        self._device = device
        self._lower = DTYPES[training.precision]
        module = training.made.make().train().to(device)
        if training.whole:
            module = module.to(self._lower)
        self._layout = torch.channels_last if self._lower else torch.contiguous_format
        self._module = module.to(memory_format=self._layout)  # pyright: ignore[reportCallIssue]
        parameters = module.parameters()
        self._parameters: list[Tensor] = [each for each in parameters if each.requires_grad]
        self._masters = self._parameters
        if training.whole:
            self._masters = [each.detach().float() for each in self._parameters]
        self._optimizer = _optimizer(training.optimizer, self._masters)
        inputs = training.made.inputs(training.micro_batch)
        self._batch = tuple(self._filled(each) for each in inputs)

    def step(self) -> None:
        """Run a step, and block until it is issued."""
        self._module.zero_grad(set_to_none=True)
        for _ in range(self._training.micro_batches):
            with self._casts():
                outputs = [x for x in tensors_in(self._module(*self._batch)) if x.requires_grad]
            torch.autograd.backward(outputs, [torch.ones_like(each) for each in outputs])
            del outputs
        self._update()

    def timed(self, seconds: float) -> tuple[int, list[float]]:
        """Return how many steps were run, and seconds of one by round."""
        alone = self._round(1)
        each = max(1, round(seconds / _LEAST_ROUNDS / alone))
        rounds = [self._round(each) for _ in range(_LEAST_ROUNDS)]
        return _LEAST_ROUNDS * each, rounds

    def _round(self, steps: int) -> float:
        self._wait()
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        self._wait()
        return (time.perf_counter() - start) / steps

    def _update(self) -> None:
        """Update the parameters, on copies in fp32 where the module is in 16 bits."""
        if not self._training.whole:
            self._optimizer.step()
            return
        for master, each in zip(self._masters, self._parameters, strict=True):
            master.grad = None if each.grad is None else each.grad.float()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_copy_(self._parameters, self._masters)  # pyright: ignore

    def _casts(self) -> AbstractContextManager[object]:
        if self._lower is None or self._training.whole:
            return nullcontext()
        return torch.autocast(self._device.type, self._lower)

    def _filled(self, like: Tensor) -> Tensor:
        if not like.is_floating_point():
            return torch.randint(2, like.shape, device=self._device)
        dtype = self._lower if self._training.whole else like.dtype
        made = torch.randn(like.shape, dtype=dtype, device=self._device)
        return made.contiguous(memory_format=self._layout) if made.dim() == 4 else made

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()


def _optimizer(kind: Optimizer, parameters: list[Tensor]) -> torch.optim.Optimizer:
    """Return an optimizer with a tiny learning rate, so that made-up data does no harm."""
    if kind is Optimizer.ADAM:
        return torch.optim.Adam(parameters, lr=_TRIFLING_RATE, fused=True)
    momentum = 0.9 if kind is Optimizer.MOMENTUM else 0.0
    return torch.optim.SGD(parameters, lr=_TRIFLING_RATE, momentum=momentum, fused=True)
