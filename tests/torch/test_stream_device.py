"""The semantics of streams, without a GPU: a device of PyTorch whose streams are threads.

Every script also runs with a backend that emulates NCCL's order, so the scripts ask of Slipstream
no more and no less than what NCCL does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.multiprocess, pytest.mark.xdist_group("stream_device")]

Run = Callable[[int, str], None]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *(("messages", 2), ("streams", 2)),
        *(
            pytest.param(name, 4, marks=pytest.mark.slow("four ranks on the test device"))
            for name in ("messages", "streams")
        ),
        *(
            pytest.param(name, count, marks=pytest.mark.slow(f"{name} on the test device"))
            for name in ("collectives", "training")
            for count in (2, 4)
        ),
    ],
)
def test_like_nccl(run_on_device: Run, name: str, count: int) -> None:
    run_on_device(count, f"{name}.py")


@pytest.mark.parametrize("run_on_device", ["slipstream"], indirect=True)
@pytest.mark.parametrize(
    "name",
    [
        *("callbacks", "failures", "host_wait", "release"),
        *(
            pytest.param(name, marks=pytest.mark.slow("training on the test device"))
            for name in ("overlapped", "encoded")
        ),
    ],
)
def test_only_slipstream(run_on_device: Run, name: str) -> None:
    run_on_device(2, f"{name}.py")


@pytest.mark.slow("four ranks on the test device")
@pytest.mark.parametrize("run_on_device", ["slipstream"], indirect=True)
@pytest.mark.parametrize("count", [4, 2])
def test_hierarchy(run_on_device: Run, count: int) -> None:
    run_on_device(count, "hierarchy.py")


@pytest.mark.parametrize("run_on_device", ["slipstream"], indirect=True)
def test_hierarchy_that_cannot_go_on(run_on_device: Run) -> None:
    run_on_device(4, "hierarchy_failures.py")


@pytest.mark.slow("Horovod on the test device")
@pytest.mark.parametrize("run_on_device", ["slipstream"], indirect=True)
@pytest.mark.parametrize(
    ("name", "count"),
    [("collectives", 2), ("collectives", 3), ("failures", 2), ("training", 2), ("hierarchy", 4)],
)
def test_horovod(run_on_device: Run, name: str, count: int) -> None:
    run_on_device(count, f"hvd_{name}.py")


@pytest.mark.parametrize("run_on_device", ["slipstream"], indirect=True)
def test_the_benchmark_of_waits_runs(run_on_device: Run) -> None:
    run_on_device(2, str(Path(__file__).parents[2] / "benchmarks/gpu/wait.py"))


@pytest.mark.parametrize("run_on_device", ["slipstream"], indirect=True)
def test_calls_of_a_model_overlap_and_stay_apart(run_on_device: Run) -> None:
    run_on_device(1, "inference.py")
