"""Collectives among some of the ranks.

slipstream run -n 4 hvd_process_sets.py
"""

import os

os.environ.setdefault("SLIPSTREAM_JOB_KEY", "a key for these tests")
os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"

import pytest
import torch

import slipstream.horovod.torch as hvd


def check_collectives(chosen: hvd.ProcessSet, ranks: list[int]) -> None:
    rank = hvd.rank()
    assert chosen.included() == (rank in ranks)
    if rank not in ranks:
        with pytest.raises(ValueError, match="not a member of the provided process set"):
            hvd.allreduce(torch.ones(1), process_set=chosen)
        return
    assert chosen.rank() == ranks.index(rank)
    assert chosen.size() == len(ranks)
    own = torch.full((3,), float(rank))
    assert (hvd.allreduce(own, op=hvd.Sum, process_set=chosen) == sum(ranks)).all()
    assert (hvd.allreduce(own, process_set=chosen) == sum(ranks) / len(ranks)).all()
    gathered = hvd.allgather(own[:1], process_set=chosen)
    assert gathered.tolist() == [float(each) for each in ranks]
    assert (hvd.broadcast(own, ranks[-1], process_set=chosen) == ranks[-1]).all()
    rows = hvd.alltoall(torch.full((len(ranks),), float(rank)), process_set=chosen)
    assert rows.tolist() == [float(each) for each in ranks]
    part = hvd.reducescatter(torch.ones(len(ranks)), op=hvd.Sum, process_set=chosen)
    assert part.tolist() == [len(ranks)]
    outside = next(iter(set(range(hvd.size())) - set(ranks)), None)
    if outside is not None:
        with pytest.raises(ValueError, match=f"invalid root rank {outside}"):
            hvd.broadcast(own, outside, process_set=chosen)
    with pytest.raises(NotImplementedError, match="non-global process sets"):
        hvd.allreduce(own, op=hvd.Adasum, process_set=chosen)
    assert hvd.allgather_object(rank, process_set=chosen) == ranks
    hvd.barrier(process_set=chosen)


def check_dynamic(evens: list[int]) -> None:
    with pytest.raises(ValueError, match="duplicate process set"):
        hvd.add_process_set(evens)
    last = [hvd.size() - 1]
    added = hvd.add_process_set(last)
    check_collectives(added, last)
    assert hvd.remove_process_set(added)
    assert added.process_set_id is None
    assert not hvd.remove_process_set(added)
    assert not hvd.remove_process_set(hvd.global_process_set)
    with pytest.raises(ValueError, match="does not exist"):
        hvd.allreduce(torch.ones(1), process_set=added)
    again = hvd.add_process_set(hvd.ProcessSet(last))
    check_collectives(again, last)
    twin = hvd.ProcessSet(last)
    hvd.init(process_sets=[twin])  # it is known by its ranks
    check_collectives(twin, last)
    assert hvd.remove_process_set(again)
    assert twin.process_set_id is None
    assert not hvd.remove_process_set(twin)
    for wrong in ([hvd.size()], [0, 0], []):
        with pytest.raises(ValueError, match="allowed: each of the ranks"):
            hvd.add_process_set(wrong)
    with pytest.raises(ValueError, match="list of process ranks"):
        hvd.ProcessSet(["0"])


def check_init() -> None:
    with pytest.raises(ValueError, match="Pass some of them"):
        hvd.init(comm=[0])
    with pytest.raises(ValueError, match="communicators are not supported"):
        hvd.init(comm=3)
    hvd.init()
    with pytest.raises(ValueError, match="Pass some of them"):
        hvd.init(comm=[0])
    assert hvd.is_initialized()
    hvd.shutdown()
    del os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"]
    hvd.init()
    with pytest.raises(ValueError, match="Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow adding"):
        hvd.add_process_set([0])
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    check_collectives(hvd.add_process_set([0]), [0])
    hvd.shutdown()


def main() -> None:
    evens = [rank for rank in range(int(os.environ["WORLD_SIZE"])) if rank % 2 == 0]
    static = hvd.ProcessSet(evens)
    assert static.process_set_id is None
    assert static.size() is None
    hvd.init(process_sets=[static])
    assert hvd.global_process_set.size() == hvd.size()
    assert hvd.global_process_set.rank() == hvd.rank()
    check_collectives(static, evens)
    same = hvd.ProcessSet(evens)
    hvd.init(process_sets=[same])
    assert same.process_set_id == static.process_set_id
    with pytest.raises(ValueError, match="call add_process_set"):
        hvd.init(process_sets=[hvd.ProcessSet([1])])
    # What is under way among all ranks has no order that adding a set could get in the way of.
    handle = hvd.allreduce_async(torch.ones(3), op=hvd.Sum, name="under way")
    added = hvd.add_process_set([hvd.size() - 1])
    assert hvd.synchronize(handle)[0] == hvd.size()
    assert hvd.remove_process_set(added)
    check_dynamic(evens)
    hvd.shutdown()
    check_init()


main()
