"""Every collective on real processes against NumPy."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.multiprocess

Start = Callable[..., Any]


@pytest.mark.sweep
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
def test_every_collective_agrees_with_numpy_over_shared_memory(
    start: Start, num_ranks: int
) -> None:
    for output in start(num_ranks, "sweep.py").finish():
        assert "cases are right" in output


@pytest.mark.slow("collectives of processes over TCP")
@pytest.mark.parametrize(("num_ranks", "tls"), [(2, "0"), (4, "0"), (3, "1")])
def test_every_collective_agrees_with_numpy_over_tcp(
    start: Start, num_ranks: int, tls: str
) -> None:
    hosts = {rank: {"SLIPSTREAM_HOST_ID": f"host {rank}"} for rank in range(num_ranks)}
    environ = {"SLIPSTREAM_TLS": tls}
    for output in start(num_ranks, "sweep.py", environ=environ, of_rank=hosts).finish():
        assert "cases are right" in output
