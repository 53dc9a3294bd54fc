"""A timeline shows the overlap with backward, what was fused, and who waited for whom.

slipstream run -n 2 hvd_timeline.py
"""

import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("SLIPSTREAM_JOB_KEY", "a key for these tests")
os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"
os.environ["HOROVOD_DISABLE_GROUP_FUSION"] = "1"  # with other tensors

import torch
from torch import nn

import slipstream.horovod.torch as hvd

LAYERS = 6
PAUSE = 0.02  # seconds of backward, per layer


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor) -> torch.Tensor:
        return rows.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(PAUSE)
        hvd.barrier()  # no two gradients are ready together
        return gradient


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16, bias=False) for _ in range(LAYERS))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        for each in self.layers:
            rows = each(Slow.apply(rows))
        return rows


@contextmanager
def recording() -> Iterator[list[dict[str, Any]]]:
    """Record the block; its events, with the titles of their rows, are in the list at the end."""
    events: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank{rank}.json"
        hvd.start_timeline(str(path), mark_cycles=True)
        yield events
        hvd.stop_timeline()
        recorded = json.loads((Path(folder) / f"rank{hvd.rank()}.json").read_text())
    assert abs(recorded["otherData"]["start_time_since_epoch_in_micros"] / 1e6 - time.time()) < 60
    named = [each for each in recorded["traceEvents"] if each["name"] == "thread_name"]
    rows = {(each["pid"], each["tid"]): each["args"]["name"] for each in named}
    for each in recorded["traceEvents"]:
        if each["ph"] != "M":
            events.append({**each, "row": rows[each["pid"], each["tid"]]})


def reductions(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in events if each["row"] == "horovod" and each["cat"] == "allreduce"]


def step(optimizer: Any, model: nn.Module, passes: int = 1) -> float:
    """Train a step; return the time when its last backward pass ended, in us of the timeline."""
    hvd.barrier()
    optimizer.zero_grad()
    for _ in range(passes):
        model(torch.ones(4, 16)).sum().backward()
    ended = time.monotonic_ns() / 1e3
    optimizer.step()
    return ended


def optimizer_of(model: nn.Module, **options: Any) -> Any:
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    return hvd.DistributedOptimizer(plain, model.named_parameters(), **options)


def check_overlap() -> None:
    """Check that gradients are reduced while backward computes the others."""
    model = Net()
    optimizer = optimizer_of(model)
    with recording() as events:
        ended = step(optimizer, model)
    done = [each for each in reductions(events) if each["ts"] + each["dur"] < ended]
    assert len(done) >= LAYERS // 2, (ended, events)


def check_negotiation() -> None:
    """Check that a bar is as long as this rank waited for the others."""
    with recording() as events:
        hvd.barrier()
        if hvd.rank():
            time.sleep(0.5)
        hvd.allreduce(torch.ones(3), name="late")
    waits = [each for each in events if each["row"] == "allreduce.late"]
    assert [each["name"] for each in waits] == ["NEGOTIATE_ALLREDUCE"], events
    assert hvd.rank() or waits[0]["dur"] > 0.1e6
    marks = [each for each in events if each["row"] == "rounds"]
    assert {(each["name"], each["ph"]) for each in marks} == {("CYCLE_START", "i")}


def count_of(passes: int = 1, **options: Any) -> int:
    """Return the number of operations of a step."""
    model = Net()
    optimizer = optimizer_of(model, **options)
    with recording() as events:
        step(optimizer, model, passes)
    return len(reductions(events))


def check_fusion() -> None:
    model = Net()
    weights = list(model.parameters())
    assert count_of() == LAYERS
    assert count_of(groups=1) == 1
    assert count_of(groups=3) == 3
    assert count_of(num_groups=2) == 2
    assert count_of(passes=3, backward_passes_per_step=3) == LAYERS
    optimizer = optimizer_of(model, groups=[weights[:4]])  # the others go alone
    with recording() as events:
        step(optimizer, model)
    assert sorted(each["args"]["bytes"] for each in reductions(events)) == [1024, 1024, 4096]


def check_started_twice() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first", "second"):
            hvd.start_timeline(f"{folder}/{name}{{rank}}.json")
        hvd.stop_timeline()
        assert [each.name for each in Path(folder).iterdir()] == [f"first{hvd.rank()}.json"]
        assert hvd.stop_timeline() is None


def main() -> None:
    hvd.init()
    check_overlap()
    check_negotiation()
    check_fusion()
    check_started_twice()
    hvd.shutdown()


main()
