"""Horovod's API with a hierarchy: "ordered" takes NCCL's place within hosts.

Ranks 0 and 1 are on one host, ranks 2 and 3 on another, as far as slipstream knows.
"""

import gc
import os

import hierarchy
import hvd_ranks
import hvd_results
import ranks
import teststream
import torch

import slipstream.horovod.torch as hvd
from slipstream.torch.cuda.kinds import KINDS

COUNT = 33_331  # float32 values: enough for stages, and not divisible by the ranks of a host


def check_reductions() -> None:
    """Average and sum tensors, alone and fused, in stages."""
    for name, op in (("sum", hvd.Sum), ("average", hvd.Average), ("max", hvd.Max)):
        own = hvd_results.numbers((COUNT,), hvd.rank())
        expected = hvd.allreduce(own, op=op, name=f"cpu {name}")
        before = hierarchy.num_calls()
        ranks.keep_busy()
        result = hvd.allreduce(own.to(ranks.DEVICE), op=op, name=name)
        assert torch.equal(result.cpu(), expected), name
        tensors = [own.to(ranks.DEVICE), own[:5].to(ranks.DEVICE)]
        fused = hvd.grouped_allreduce_(tensors, op=op, name=f"fused {name}")
        assert torch.equal(fused[0].cpu(), expected), name
        assert torch.equal(fused[1].cpu(), expected[:5]), name
        assert hierarchy.num_calls() - before == 4, name


def check_sets() -> None:
    """Check that sets of some ranks do without the library within hosts."""
    some = hvd.add_process_set([0, 1, 2])
    before = hierarchy.num_calls()
    if some.included():
        tensor = torch.ones(COUNT, device=ranks.DEVICE)
        assert hvd.allreduce(tensor, op=hvd.Sum, process_set=some).eq(3).all().item()
    assert hierarchy.num_calls() == before
    hvd.remove_process_set(some)


def main() -> None:
    """Run all checks."""
    rank = int(os.environ["RANK"])
    os.environ["SLIPSTREAM_HOST_ID"] = f"host {rank // hierarchy.LOCAL}"
    hvd_ranks.prepare()
    KINDS[teststream.NAME] = KINDS[teststream.NAME]._replace(
        identity=lambda _: f"device of {rank}".encode(),
        local_name="ordered",
        connect=hierarchy.connect,
    )
    hvd.init(process_sets="dynamic")
    check_reductions()
    check_sets()
    hvd_results.check_codec(hvd_ranks.TARGET, hvd.Compression.int8, hvd.Sum)
    hvd_ranks.finish()
    hierarchy.connected.clear()
    gc.collect()  # the last user of the store of a host deletes its file


if __name__ == "__main__":
    main()
