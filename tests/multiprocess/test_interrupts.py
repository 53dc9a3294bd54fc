"""Ctrl-C ends a rank wherever it waits for another one."""

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from elastic_slots import slot

from slipstream.cluster.launch.ports import find_free_port_pair

pytestmark = pytest.mark.multiprocess

Start = Callable[..., Any]

CALLS = ("allreduce", "large_allreduce", "barrier", "receive", "group", "handle")
TORCH = ("torch_allreduce", "torch_barrier", "torch_objects", "overlap")
HOROVOD = ("horovod_allreduce", "horovod_join", "horovod_objects")
CHECKPOINT = ("checkpoint_save", "checkpoint_restore")
PLACES = ("init", "elastic_init", *CALLS, *TORCH, *HOROVOD, *CHECKPOINT)


@pytest.mark.slow("ctrl-c")
@pytest.mark.parametrize("place", PLACES)
def test_ctrl_c_ends_a_rank_that_waits(start: Start, place: str) -> None:
    ports = [find_free_port_pair() for _ in range(2)]
    of_rank = {0: slot(ports, 0)} if place.startswith("elastic") else {}
    absent = (1,) if place.endswith("init") else ()
    waiting = start(2, "interrupted.py", place, of_rank=of_rank, absent=absent).ranks[0]
    waiting.wait_for("waits")
    time.sleep(0.3)  # it gets into the call
    waiting.signal(signal.SIGINT)
    assert waiting.process.wait(30) == -signal.SIGINT
    assert "KeyboardInterrupt" in waiting.output
