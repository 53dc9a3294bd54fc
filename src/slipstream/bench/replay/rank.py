"""One rank of a replay: python -m slipstream.bench.replay.rank JOB.

JOB is JSON text from `ReplayJob.as_text`. Environment variables, the same as with torchrun,
identify the rank. Rank 0 writes the step times.
"""

# PyTorch's type stubs leave some types unspecified.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import gc
import sys
import time

import torch
import torch.distributed as dist

from slipstream.bench.devices import CPU, backend_for, choose_device, settle
from slipstream.bench.models import model
from slipstream.bench.replay.device import BusyDevice, TimedDevice
from slipstream.bench.replay.job import ReplayJob, ReplaySamples
from slipstream.bench.replay.module import ReplayModule
from slipstream.bench.replay.strategies import STRATEGIES, Step


def main(text: str) -> None:
    """Measure together with the other ranks; rank 0 writes the step times.

    Args:
        text: Settings as JSON text, from `ReplayJob.as_text`.
    """
    job = ReplayJob.from_text(text)
    torch.set_num_threads(1)
    gc.disable()  # a garbage collection in one rank would make all ranks wait
    dist.init_process_group(backend_for(job.backend, job.device))
    try:
        device = choose_device(job.device)
        measured = measure(make_step(job, device), device, job.warmup, job.steps)
        if dist.get_rank() == 0:
            measured.write(job.output)
    finally:
        dist.destroy_process_group()


def make_step(job: ReplayJob, device: torch.device) -> Step:
    """Return a function that runs one training step with these settings.

    Args:
        job: Settings.
        device: Device that has the gradients and computes.
    """
    is_busy = job.busy or device.type != CPU
    module = ReplayModule(
        model(job.model),
        BusyDevice(device) if is_busy else TimedDevice(),
        job.compute_seconds,
        seed=dist.get_rank(),
        sparse=job.sparse,
        place=device,
    )
    return STRATEGIES[job.strategy](module)


def measure(step: Step, device: torch.device, warmup: int, steps: int) -> ReplaySamples:
    """Run steps, and return the seconds of each measured step on the slowest rank.

    A step on a device has ended when the stream of its forward passes and updates is empty.

    Args:
        step: Function that runs one step.
        device: Device that computes.
        warmup: Number of steps before the measured steps.
        steps: Number of measured steps.
    """
    for _ in range(warmup):
        step()
    settle(device)
    dist.barrier()
    seconds: list[float] = []
    start = time.perf_counter()
    for _ in range(steps):
        step()
        if device.type != CPU:
            torch.get_device_module(device).current_stream().synchronize()
        end = time.perf_counter()
        seconds.append(end - start)
        start = end
    slowest = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return ReplaySamples(seconds=tuple(slowest.tolist()))


if __name__ == "__main__":
    main(sys.argv[1])
