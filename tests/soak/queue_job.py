"""A job of tests/soak/queue_kills.py: it writes down when it ran and on what, apart from the queue.

Arguments: number of the job, its length in seconds, log, and file for its checkpoint. SIGTERM makes
it save how much it has done, and it goes on from there when it is started again.
"""

import os
import signal
import sys
import time

STOPPED = 75
START = time.time()


def log(what: str) -> None:
    """Add a line to the log; one write of a short line is not mixed with those of others."""
    environ = os.environ
    memory = environ.get("SLIPSTREAM_GPU_MEMORY", "whole")
    fields = (what, sys.argv[1], f"{time.time():.4f}", environ["CUDA_VISIBLE_DEVICES"], memory)
    descriptor = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, (" ".join(fields) + "\n").encode())
    os.close(descriptor)


def stop(*_: object) -> None:
    """Save how much is done, and end."""
    with open(sys.argv[4] + ".part", "w") as file:
        file.write(str(DONE + time.time() - START))
    os.rename(sys.argv[4] + ".part", sys.argv[4])
    log("stop")
    os._exit(STOPPED)


signal.signal(signal.SIGTERM, stop)
DONE = 0.0
if os.path.exists(sys.argv[4]):
    with open(sys.argv[4]) as file:
        DONE = float(file.read())
log("start")
START = time.time()
time.sleep(max(0.0, float(sys.argv[2]) - DONE))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
log("end")
