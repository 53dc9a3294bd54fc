"""Connecting waits for peers, and hears signals meanwhile."""

import signal
import time

import pytest

from slipstream import _core


class InterruptedByTestError(Exception):
    """What the handler of these tests raises."""


def test_ctrl_c_ends_connecting() -> None:
    def interrupt(*_: object) -> None:
        raise InterruptedByTestError

    runtimes = [
        _core.Runtime(
            rank=rank, world_size=2, key=b"k" * 32, config=_core.Config(host_id=f"host {rank}")
        )
        for rank in range(2)
    ]
    addresses = [runtime.address() for runtime in runtimes]
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    began_at = time.monotonic()
    try:
        # Rank 0 listens, and never looks who comes.
        with pytest.raises(InterruptedByTestError):
            runtimes[1].connect(addresses, 60.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        for runtime in runtimes:
            runtime.close()
    assert time.monotonic() - began_at < 10.0
