"""What gloo passes of PyTorch's own distributed suite, Slipstream passes too."""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BASELINE: dict[str, Any] = json.loads((Path(__file__).parent / "gloo_baseline.json").read_text())

# Tests that cannot pass because PyTorch has the name gloo in its code, with what proves it: the
# line that compares names, which each of them must still fail at.
MONITORED_BARRIER = r'raise ValueError\("monitored_barrier is only implemented for GLOO backend'
EXCEPTIONS = {
    "test_get_backend": r"assertEqual\(dist.get_backend\(\), backend_str\)",
    "test_monitored_barrier_gloo": MONITORED_BARRIER,
    "test_monitored_barrier_gloo_subgroup": MONITORED_BARRIER,
    "test_monitored_barrier_failure_order": MONITORED_BARRIER,
    "test_monitored_barrier_wait_all_ranks": MONITORED_BARRIER,
}
MOST_EXCEPTIONS = 15

# What PyTorch's own CI runs without GPUs; the other ways are for what its suite leaves out there.
USUAL = ("gloo", 3)

RUNS = [
    (seen_as, int(world_size), name)
    for way, outcomes in BASELINE["runs"].items()
    for seen_as, world_size in [way.split()]
    for name in sorted(outcomes)
]

installed = importlib.metadata.version("torch").split("+")[0]
pytestmark = [
    pytest.mark.multiprocess,
    pytest.mark.skipif(
        installed != BASELINE["torch"],
        reason=f"gloo's outcomes are recorded for torch {BASELINE['torch']}, this is {installed};"
        " run record_gloo_baseline.py",
    ),
]


def parameters(*, exceptions: bool) -> list[Any]:
    """Return the runs of exceptions or of the rest; those that are not usual are slow."""
    return [
        pytest.param(
            *run,
            marks=pytest.mark.sweep
            if run[:2] == USUAL
            else pytest.mark.slow("PyTorch's suite on other numbers of ranks"),
        )
        for run in RUNS
        if (run[2] in EXCEPTIONS) == exceptions
    ]


@pytest.mark.parametrize(("seen_as", "world_size", "name"), parameters(exceptions=False))
def test_passes_what_gloo_passes(
    run_suite_test: Callable[[str, int, str], dict[str, Any]],
    seen_as: str,
    world_size: int,
    name: str,
) -> None:
    answer = run_suite_test(seen_as, world_size, name)
    assert answer["outcome"] == "passed", answer["detail"]


@pytest.mark.parametrize(("seen_as", "world_size", "name"), parameters(exceptions=True))
def test_exceptions_fail_at_the_name_gloo(
    run_suite_test: Callable[[str, int, str], dict[str, Any]],
    seen_as: str,
    world_size: int,
    name: str,
) -> None:
    answer = run_suite_test(seen_as, world_size, name)
    assert answer["outcome"] == "failed"
    assert re.search(EXCEPTIONS[name], answer["detail"]), answer["detail"]


def test_exceptions_are_few_and_exist() -> None:
    assert len(EXCEPTIONS) <= MOST_EXCEPTIONS
    assert set(EXCEPTIONS) <= {name for _, _, name in RUNS}
