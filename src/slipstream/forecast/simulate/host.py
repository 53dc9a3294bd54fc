"""Work of a rank's host, which launches kernels and runs the training script between steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.forecast.simulate.compute import FloatArray, Work
from slipstream.forecast.simulate.job import TrainingJob


@dataclass(frozen=True, slots=True, eq=False)
class HostWork:
    """Time that the host of a pipeline rank needs, in seconds.

    Args:
        launches: Time to launch each operator of the whole model for one micro-batch.
        updates: Time to launch the optimizer's kernels for the parameters of the rank.
        script: Time of the training script after a step, during which the device waits.
        step: Time of all launches of the rank for one step.
    """

    launches: FloatArray
    updates: float
    script: float
    step: float


def host_work(
    job: TrainingJob, work: Work, sums: FloatArray, num_parameters: int, ranks: int
) -> HostWork:
    """Return the time that the host of a pipeline rank needs.

    Args:
        job: Job with the runtime and its calibrated overheads.
        work: Sizes and FLOPs of the operators of the model.
        sums: Bytes that tensor-parallel ranks sum after each operator; each sum is one more launch.
        num_parameters: Number of parameters that the optimizer updates one by one.
        ranks: Number of pipeline ranks, which divide the operators and the parameters.
    """
    runtime = job.runtime
    launches = np.zeros(len(work.backward))
    if not runtime.graphs:
        micros = np.where(work.backward, runtime.backward_us, runtime.forward_us)
        collectives = np.where(sums > 0, runtime.collective_us, 0.0)
        launches = (micros + collectives) * 1e-6 * job.pace
    updates = num_parameters * runtime.update_us * 1e-6 * job.pace / ranks
    # A device that is a CPU executes the updates itself, so it does nothing else meanwhile.
    waits = updates if job.cluster.device.kind == "cpu" else 0.0
    return HostWork(
        launches=launches,
        updates=updates,
        script=runtime.step_ms * 1e-3 * job.pace + waits,
        step=float(launches.sum()) * job.strategy.micro_batches / ranks + updates,
    )
