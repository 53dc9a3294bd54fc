"""Sum numbers with all logs on, wait for a file, and then let rank 1 fail: `secretive.py FILE`."""

import logging
import os
import sys
import time
from pathlib import Path

import numpy as np

from slipstream import comm

logging.basicConfig(level=logging.NOTSET)
comm.init()
comm.allreduce(np.ones(100_000, np.float32))
print(f"rank {comm.rank()} waits", flush=True)
while not Path(sys.argv[1]).exists():
    time.sleep(0.02)
if comm.rank() == 1:
    os.kill(os.getpid(), 9)
comm.allreduce(np.ones(100_000, np.float32))
