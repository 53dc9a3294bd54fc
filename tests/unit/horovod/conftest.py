"""Two engines of one process that are connected to each other."""

import threading
from collections.abc import Iterator

import pytest

from slipstream import _core


@pytest.fixture
def pair() -> Iterator[list[_core.Runtime]]:
    """Yield the engines of two ranks, which meet over TCP as on two hosts."""
    runtimes = [
        _core.Runtime(
            rank=rank, world_size=2, key=b"k" * 32, config=_core.Config(host_id=f"host {rank}")
        )
        for rank in range(2)
    ]
    addresses = [runtime.address() for runtime in runtimes]
    other = threading.Thread(target=runtimes[1].connect, args=(addresses, 30.0))
    other.start()
    runtimes[0].connect(addresses, 30.0)
    other.join()
    yield runtimes
    for runtime in runtimes:
        runtime.close()
