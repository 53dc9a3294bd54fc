"""A rank whose connections the test leads through a relay.

It prints its address, reads the addresses of all ranks, averages one gradient, and prints the sum.
"""

import os
import sys

import numpy as np

from slipstream import _core
from slipstream.comm.config import engine_config
from slipstream.settings import Settings

COUNT = 1_000_000  # elements of the gradient
LEAST_SECONDS = 60.0


def main() -> None:
    """Reduce a gradient of which every element has the rank's pattern of bytes."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    settings = Settings.from_environment()
    key = settings.load_job_key()
    assert key is not None
    config = engine_config(settings, None)
    runtime = _core.Runtime(rank=rank, world_size=size, epoch=1, key=key, config=config)
    print(runtime.address().hex(), flush=True)
    addresses = [bytes.fromhex(text) for text in sys.stdin.readline().split()]
    runtime.connect(addresses, LEAST_SECONDS)
    gradient = np.full(COUNT, int(sys.argv[1], 16) + rank, dtype=np.int64)
    group = runtime.group("world", list(range(size)))
    handle = group.allreduce(
        gradient.ctypes.data, gradient.ctypes.data, COUNT, _core.DType.INT64, _core.ReduceOp.SUM
    )
    handle.wait()
    print(f"sum {int(gradient[0])} {int(gradient[-1])}", flush=True)
    sys.stdin.readline()  # until all ranks have finished
    runtime.close()


if __name__ == "__main__":
    main()
