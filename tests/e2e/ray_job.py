"""A driver on a Ray of this machine, which checks what it gets and prints `done`."""

from __future__ import annotations

import time

import pytest
import ray
import torch

import slipstream.horovod.torch as hvd
from slipstream.errors import UnsupportedError, UsageError
from slipstream.horovod.ray import RayExecutor, ray_logger


class Trainer:
    """What a rank keeps between calls."""

    def __init__(self, start: int, *, step: int = 1) -> None:
        hvd.init()
        self.value, self.step = start + hvd.rank(), step

    def summed(self) -> int:
        """Return the sum over all ranks of values that grow from call to call."""
        self.value += self.step
        return int(hvd.allreduce(torch.tensor([self.value]), op=hvd.Sum).item())


def train(scale: float, offset: float = 0.0) -> tuple[int, int, int, float]:
    """Return the rank, the size, the local rank, and the sum of a number over all ranks."""
    hvd.init()
    total = hvd.allreduce(torch.tensor([scale]), op=hvd.Sum).item() + offset
    for step in range(3):
        ray_logger.log({"rank": hvd.rank(), "step": step})
        time.sleep(0.05)
    who = hvd.rank(), hvd.size(), hvd.local_rank()
    hvd.shutdown()
    return (*who, total)


EXPECTED = [(0, 2, 0, 5.0), (1, 2, 1, 5.0)]


def check_functions() -> None:
    """Run functions on all ranks, and check their results and logs."""
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=60), num_workers=2)
    assert executor.num_workers == 2
    executor.start(extra_env_vars={"HOROVOD_FUSION_THRESHOLD": "1000"})
    with pytest.raises(UsageError, match="started before"):
        executor.start()
    assert executor.run(train, args=[2.0], kwargs={"offset": 1.0}) == EXPECTED
    seen: list[dict[str, int]] = []
    assert executor.run(train, args=[2.5], callbacks=[seen.append]) == EXPECTED
    assert seen == [{"rank": 0, "step": step} for step in range(3)]
    assert ray.get(executor.run_remote(train, [2.5])) == EXPECTED
    executor.shutdown()
    executor.shutdown()
    with pytest.raises(UsageError, match=r"call start\(\) first"):
        executor.run(train)


def check_executables() -> None:
    """Check calls of an object that ranks keep, and functions; the ranks are counted by host."""
    settings = RayExecutor.create_settings(timeout_s=60)
    executor = RayExecutor(settings, num_hosts=1, num_workers_per_host=2)
    assert executor.num_workers == 2
    executor.start(Trainer, executable_args=[10], executable_kwargs={"step": 5})
    assert executor.execute(lambda trainer: trainer.summed()) == [31, 31]
    assert executor.execute(lambda trainer: trainer.summed()) == [41, 41]
    assert executor.execute_single(lambda trainer: trainer.value) == 20
    assert executor.run(train, args=[2.5]) == EXPECTED
    executor.shutdown()


def check_wrong_calls() -> None:
    """Check that wrong calls are refused."""
    settings = RayExecutor.create_settings(placement_group_timeout_s=1)
    for wrong in ({}, {"num_workers": 1, "num_hosts": 1}, {"num_workers": 0}, {"num_hosts": 0}):
        with pytest.raises(UsageError, match="allowed"):
            RayExecutor(settings, **wrong)
    with pytest.raises(UnsupportedError, match="elastic"):
        RayExecutor(settings, min_workers=1)
    with pytest.raises(UnsupportedError, match="no room for 99 bundles"):
        RayExecutor(settings, num_workers=99).start()


def main() -> None:
    """Run all checks on a Ray cluster that ends with this process."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=True)
    check_functions()
    check_executables()
    check_wrong_calls()
    ray.shutdown()
    print("done")


if __name__ == "__main__":
    main()
