"""Ranks with less data than others.

slipstream run -n 2 hvd_join.py
"""

import os

os.environ.setdefault("SLIPSTREAM_JOB_KEY", "a key for these tests")

import pytest
import torch

import slipstream.horovod.torch as hvd


def check_reductions(first: int, dtype: torch.dtype) -> None:
    """Check that the rank that joins first counts as zeros."""
    for again in range(2):
        if hvd.rank() != first:
            others = hvd.size() - 1
            small = torch.full((5,), 6).to(dtype)
            handles = [
                hvd.allreduce_async(small, name="small", op=hvd.Sum),
                hvd.allreduce_async(small * 2, name="like it", op=hvd.Average),
                hvd.allreduce_async(torch.ones(400_000, dtype=dtype), name="large", op=hvd.Sum),
            ]
            summed, averaged, large = [hvd.synchronize(each) for each in handles]
            assert (summed == 6 * others).all(), again
            assert torch.equal(averaged, (small * 2 * others / hvd.size()).to(dtype)), again
            assert (large == others).all(), again
        last = hvd.join()
        assert 0 <= last < hvd.size()
        lasts = hvd.allgather(torch.tensor([last]))
        assert (lasts == last).all()


def check_adasum() -> None:
    if hvd.rank() != 0:
        own = torch.zeros(hvd.size())
        own[hvd.rank()] = 1
        summed = hvd.allreduce(own, op=hvd.Adasum, name="adasum")
        assert summed.tolist() == [0.0, *[1.0] * (hvd.size() - 1)]
    hvd.join()


def check_disagreement() -> None:
    """Check that a rank that has joined gets no error about a mismatch of the others."""
    if hvd.rank() != 0:
        for size in (2 + hvd.rank() % 2, 5):
            try:
                hvd.allreduce(torch.ones(size), name="loss")
            except hvd.HorovodInternalError:
                assert size < 5
    hvd.join()
    assert hvd.allreduce(torch.ones(5), op=hvd.Sum, name="loss").sum() == 5 * hvd.size()


def check_others_fail() -> None:
    if hvd.rank() != 0:
        for call, what in (
            (lambda: hvd.allgather(torch.ones(2)), "Allgather"),
            (lambda: hvd.broadcast(torch.ones(2), 1), "Broadcast"),
            (lambda: hvd.alltoall(torch.ones(hvd.size())), "Alltoall"),
            (lambda: hvd.reducescatter(torch.ones(hvd.size())), "Reducescatter"),
        ):
            with pytest.raises(
                hvd.HorovodInternalError, match=f"{what} is not supported with Join"
            ):
                call()
    hvd.join()


def check_names_after_errors() -> None:
    """Check that ranks with different numbers of calls without names meet again."""
    for first in range(hvd.size()):
        if hvd.rank() != first:
            with pytest.raises(hvd.HorovodInternalError, match="not supported with Join"):
                hvd.allgather(torch.ones(17, 17))
        last = hvd.join()
        assert hvd.allgather_object(last) == [last] * hvd.size()
        assert hvd.broadcast_object(last if hvd.rank() == 1 else None, 1) == last
        rows = torch.full((2,), hvd.rank())
        assert hvd.allgather(rows).tolist() == [r for r in range(hvd.size()) for _ in "ab"]


def main() -> None:
    hvd.init()
    for first in (0, 1):
        for dtype in (torch.int64, torch.float32):
            check_reductions(first, dtype)
    check_others_fail()
    check_names_after_errors()
    check_adasum()
    check_disagreement()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    hvd.shutdown()


main()
