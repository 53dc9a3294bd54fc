"""Horovod's API on the test device: ranks that disagree, wrong calls, and a rank that dies."""

import os
import time

import hvd_ranks
import hvd_results
import pytest
import ranks
import teststream
import torch

import slipstream.horovod.torch as hvd
from slipstream.horovod.torch import device_site

END_SECONDS = 20.0  # far more than it takes


def check_devices_differ() -> None:
    """A tensor that is on the device of one rank only fails on all ranks, and the job goes on."""
    device = "cpu" if hvd.rank() == 0 else ranks.DEVICE
    for turn in range(3):
        with pytest.raises(hvd.HorovodInternalError) as caught:
            hvd.allreduce(torch.ones(3, device=device), name="loss")
        for text in ("'allreduce.loss'", "on cpu", f"on {teststream.NAME}"):
            assert text in str(caught.value), caught.value
        tensor = torch.full((1000,), float(turn), device=ranks.DEVICE)
        total = hvd.allreduce(tensor, op=hvd.Sum, name="loss")
        assert total.eq(turn * hvd.size()).all().item()


def check_wrong_calls() -> None:
    """Calls that are refused do not change the names of later tensors."""
    matrix = torch.ones(4, 4, device=ranks.DEVICE)
    if hvd.rank() == 0:
        with pytest.raises(ValueError, match="contiguous"):
            hvd.allreduce(matrix.t()[:2])
        with pytest.raises(ValueError, match="captured into a"), teststream.graph():
            hvd.allreduce(matrix)
        with pytest.raises(ValueError, match="allowed: dense tensors on the CPU and on CUDA GPUs"):
            hvd.allreduce(torch.ones(2, device="meta"))
    assert hvd.allreduce(matrix, op=hvd.Sum).eq(hvd.size()).all().item()


def check_a_failed_rank() -> None:
    """A rank cannot start an operation that the others have started; then the job starts again."""
    tensor = torch.ones(1_300_001, device=ranks.DEVICE)
    if hvd.rank() == 0:
        device_site.DeviceSite.starting, original = fail, device_site.DeviceSite.starting
    with pytest.raises(
        hvd.HorovodInternalError, match="rank 0 has closed" if hvd.rank() else "no memory"
    ):
        hvd.allreduce(tensor, name="failed")
    if hvd.rank() == 0:
        device_site.DeviceSite.starting = original
        time.sleep(0.5)  # others hear of it before this rank leaves the job
    hvd.shutdown()
    hvd.init()
    assert hvd.allreduce(tensor, op=hvd.Sum).eq(hvd.size()).all().item()


def fail(*_: object) -> None:
    raise torch.OutOfMemoryError("no memory is left")


def check_a_dead_rank() -> None:
    """The last rank dies after the start of an exchange: nobody's stream waits for it."""
    last = hvd.size() - 1
    tensor = torch.ones(8_000_000, device=ranks.DEVICE)
    begin = time.monotonic()
    handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="stopped")
    if hvd.rank() == last:
        while not handle._handles[0]._started.is_set():
            time.sleep(1e-4)
        os._exit(0)
    with pytest.raises(hvd.HorovodInternalError, match=f"rank {last}"):
        hvd.synchronize(handle)
    teststream.synchronize()
    assert time.monotonic() - begin < END_SECONDS
    with pytest.raises(hvd.HorovodInternalError, match=f"rank {last}"):
        hvd.allreduce(tensor)


def main() -> None:
    """Run all checks."""
    hvd_ranks.start()
    check_devices_differ()
    check_wrong_calls()
    hvd_results.check_codec(hvd_ranks.TARGET, hvd.Compression.int8, hvd.Average)
    check_a_failed_rank()
    check_a_dead_rank()
    hvd_ranks.finish()


if __name__ == "__main__":
    main()
