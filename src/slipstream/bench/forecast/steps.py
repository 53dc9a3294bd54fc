"""Training of a model for some steps on this device, in the way that the forecast assumes.

The data are random: numbers from a normal distribution, or the integers 0 and 1, which are valid
indices of every embedding table. 16-bit convolutions use the memory format channels last. The
optimizer updates all parameters in one kernel (`fused`). The loss is the sum of the model's
outputs.
"""

# PyTorch's type stubs leave some types unspecified.
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

_WARMUP = 3  # steps in which the optimizer allocates its state and libraries choose kernels
_ROUNDS = 5
_LEARNING_RATE = 1e-8  # so small that training on random data does not make the weights diverge


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """Settings of the training of a model on one device.

    Args:
        architecture: Description of the model, which makes the module and its inputs.
        micro_batch: Number of samples in a micro-batch.
        micro_batches: Number of micro-batches in a step (default 1).
        precision: Precision of matrix products (default "fp32").
        all_16_bits: Whether the whole module is in 16 bits and the optimizer updates fp32 copies of
            the parameters (default False).
        optimizer: Optimizer that updates the parameters (default Adam).
    """

    architecture: Architecture
    micro_batch: int
    micro_batches: int = 1
    precision: Precision = "fp32"
    all_16_bits: bool = False
    optimizer: Optimizer = Optimizer.ADAM


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Measured times of training steps.

    Args:
        count: Number of timed steps.
        seconds: Seconds per step, the median of the rounds.
        low: Seconds per step in the fastest round.
        high: Seconds per step in the slowest round.
        memory: Bytes in use on the device after the steps, including the CUDA context; None without
            a GPU.
    """

    count: int
    seconds: float
    low: float
    high: float
    memory: int | None


def train(training: TrainingSetup, tell: Tell, *, seconds: float = 10.0) -> Steps:
    """Time training steps of a model on the GPU, or on the processors if there is no GPU.

    Args:
        training: Settings of the training, including the model.
        tell: Function that receives a line about each stage.
        seconds: Duration of the timed steps in seconds (default 10).

    Raises:
        torch.OutOfMemoryError: the model does not fit on the device.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tell(f"making {training.architecture.name}")
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
    """A model with its optimizer and a batch of random data, ready for training steps.

    Args:
        training: Model and settings of the training.
        device: Device of the training.
    """

    def __init__(self, training: TrainingSetup, device: torch.device) -> None:
        self._training = training
        self._device = device
        self._lower = DTYPES[training.precision]
        module = training.architecture.make().train().to(device)
        if training.all_16_bits:
            module = module.to(self._lower)
        self._layout = torch.channels_last if self._lower else torch.contiguous_format
        self._module = module.to(memory_format=self._layout)  # pyright: ignore[reportCallIssue]
        self._parameters: list[Tensor] = [
            parameter for parameter in module.parameters() if parameter.requires_grad
        ]
        self._masters = self._parameters
        if training.all_16_bits:
            self._masters = [parameter.detach().float() for parameter in self._parameters]
        self._optimizer = _optimizer(training.optimizer, self._masters)
        inputs = training.architecture.inputs(training.micro_batch)
        self._batch = tuple(self._filled(tensor) for tensor in inputs)

    def step(self) -> None:
        """Issue one training step to the device."""
        self._module.zero_grad(set_to_none=True)
        for _ in range(self._training.micro_batches):
            with self._casts():
                outputs = [x for x in tensors_in(self._module(*self._batch)) if x.requires_grad]
            torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
            del outputs
        self._update()

    def timed(self, seconds: float) -> tuple[int, list[float]]:
        """Time several rounds; return the number of all steps and each round's seconds per step."""
        alone = self._round(1)
        steps = max(1, round(seconds / _ROUNDS / alone))
        rounds = [self._round(steps) for _ in range(_ROUNDS)]
        return _ROUNDS * steps, rounds

    def _round(self, steps: int) -> float:
        self._wait()
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        self._wait()
        return (time.perf_counter() - start) / steps

    def _update(self) -> None:
        """Update the parameters; if the module is in 16 bits, update its fp32 copies first."""
        if not self._training.all_16_bits:
            self._optimizer.step()
            return
        for master, parameter in zip(self._masters, self._parameters, strict=True):
            master.grad = None if parameter.grad is None else parameter.grad.float()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_copy_(self._parameters, self._masters)  # pyright: ignore

    def _casts(self) -> AbstractContextManager[object]:
        if self._lower is None or self._training.all_16_bits:
            return nullcontext()
        return torch.autocast(self._device.type, self._lower)

    def _filled(self, like: Tensor) -> Tensor:
        if not like.is_floating_point():
            return torch.randint(2, like.shape, device=self._device)
        dtype = self._lower if self._training.all_16_bits else like.dtype
        numbers = torch.randn(like.shape, dtype=dtype, device=self._device)
        return numbers.contiguous(memory_format=self._layout) if numbers.dim() == 4 else numbers

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()


def _optimizer(kind: Optimizer, parameters: list[Tensor]) -> torch.optim.Optimizer:
    """Return an optimizer of the given kind for the parameters, with a tiny learning rate."""
    if kind is Optimizer.ADAM:
        return torch.optim.Adam(parameters, lr=_LEARNING_RATE, fused=True)
    momentum = 0.9 if kind is Optimizer.MOMENTUM else 0.0
    return torch.optim.SGD(parameters, lr=_LEARNING_RATE, momentum=momentum, fused=True)
