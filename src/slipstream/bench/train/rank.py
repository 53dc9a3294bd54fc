"""One rank of a training benchmark: python -m slipstream.bench.train.rank JOB.

JOB is JSON text from `TrainJob.as_text`. Environment variables, the same as with torchrun, identify
the rank. A contender is a compared way to train. Every contender trains its own copy of a model,
with the same initial weights and the same samples. In each round every contender trains for some
steps in its turn.
"""

# PyTorch's type stubs leave some types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from slipstream.bench.devices import CPU, NCCL_WAYS, choose_device, new_group, settle
from slipstream.bench.train.hooks import HOOKS
from slipstream.bench.train.job import ACROSS, ALONE, NOTE, TrainJob, TrainSamples, write_trained
from slipstream.bench.train.models import MODELS, Batch
from slipstream.torch import compress, overlap

# Batches of a device are made before the first step, because making them takes the CPU long.
NUM_BATCHES = 4


class TrainingRun:
    """Training of a model with one of the compared ways to communicate.

    All ranks must construct these objects in the same order.

    Args:
        model: Name from `models.MODELS`.
        contender: Name of the way to communicate, from `TrainJob.contenders`.
        device: Device that trains.
    """

    def __init__(self, model: str, contender: str, device: torch.device) -> None:
        self.contender = contender
        self._device = device
        self.seconds: list[float] = []
        self._trainable = MODELS[model]
        torch.manual_seed(0)
        network = self._trainable.build().to(device)
        self.parameters = sum(parameter.numel() for parameter in network.parameters())
        self._optimizer = torch.optim.SGD(
            network.parameters(), lr=self._trainable.learning_rate, momentum=0.9
        )
        self._model, self._settle = self._connected(network)
        self._samples = torch.Generator().manual_seed(1 + dist.get_rank())
        count = 0 if device.type == CPU else NUM_BATCHES
        self._batches = [self._new_batch() for _ in range(count)]
        self._losses: list[torch.Tensor] = []

    def run(self, steps: int) -> float:
        """Train for some steps, and return the mean seconds per step."""
        settle(self._device)
        dist.barrier()
        start = time.perf_counter()
        for _ in range(steps):
            self._step()
        self._settle()
        settle(self._device)
        return (time.perf_counter() - start) / steps

    def result(self) -> TrainSamples:
        """Return the measurements, combined over all ranks, which must call `result` together."""
        seconds = torch.tensor(self.seconds, dtype=torch.float64)
        losses = torch.stack(self._losses).cpu().double()
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        dist.all_reduce(losses)
        return TrainSamples(
            contender=self.contender,
            samples_per_step=self._trainable.batch_size * dist.get_world_size(),
            parameters=self.parameters,
            seconds=tuple(seconds.tolist()),
            losses=tuple((losses / dist.get_world_size()).tolist()),
        )

    def _connected(self, network: torch.nn.Module) -> tuple[torch.nn.Module, Callable[[], None]]:
        """Return the network to call, and a function that waits until communication has ended."""
        if self.contender == ALONE:
            return network, _nothing
        way, _, details = self.contender.partition(" ")
        backend, _, hook = (way, "", "") if way in NCCL_WAYS else way.partition("-")
        group = new_group(backend, self._device)
        if details.startswith(ACROSS):
            codec = details.removeprefix(ACROSS).strip()
            across = overlap(network, self._optimizer, group=group, codec=codec or "none")
            return network, across.wait
        wrapped = DistributedDataParallel(
            network,
            process_group=group,
            bucket_cap_mb=self._trainable.bucket_megabytes,
            init_sync=False,  # all start from the same weights
            gradient_as_bucket_view=self._device.type != CPU,  # models of all contenders share it
        )
        # as in examples/01_fashion_mnist, steps communicate nothing but gradients
        wrapped.broadcast_buffers = False
        if details:
            compress(wrapped, details)
        elif hook:
            HOOKS[hook](wrapped, group)
        return wrapped, _nothing

    def _new_batch(self) -> Batch:
        inputs, targets = self._trainable.batch(self._trainable.batch_size, self._samples)
        return inputs.to(self._device), targets.to(self._device)

    def _next_batch(self) -> Batch:
        if not self._batches:
            return self._new_batch()
        return self._batches[len(self._losses) % len(self._batches)]

    def _step(self) -> None:
        inputs, targets = self._next_batch()
        self._optimizer.zero_grad()
        loss = functional.cross_entropy(self._model(inputs), targets)
        loss.backward()
        self._optimizer.step()
        self._losses.append(loss.detach())


def main(text: str) -> None:
    """Measure together with the other ranks; rank 0 writes the results.

    Args:
        text: Settings as JSON text, from `TrainJob.as_text`.
    """
    job = TrainJob.from_text(text)
    torch.set_num_threads(1)
    gc.disable()  # a garbage collection in one rank would make all ranks wait
    dist.init_process_group("gloo")
    try:
        results = measure(job)
        if dist.get_rank() == 0:
            write_trained(job.output, results)
    finally:
        dist.destroy_process_group()


def measure(job: TrainJob) -> list[TrainSamples]:
    """Train the models of all contenders in turns, and return their measurements.

    Args:
        job: Settings, the same on all ranks.
    """
    device = choose_device(job.device)
    trainings = [TrainingRun(job.model, contender, device) for contender in job.contenders]
    for training in trainings:
        _tell(f"{job.model} over {training.contender}, warm-up")
        training.run(job.warmup)
    for number in range(job.rounds):
        for training in trainings:
            _tell(f"{job.model} over {training.contender}, round {number + 1} of {job.rounds}")
            training.seconds.append(training.run(job.steps))
    return [training.result() for training in trainings]


def _tell(text: str) -> None:
    if dist.get_rank() == 0:
        print(f"{NOTE}{text}", flush=True)


def _nothing() -> None:
    pass


if __name__ == "__main__":
    main(sys.argv[1])
