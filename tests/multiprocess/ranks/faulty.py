"""Ranks that reduce in a loop; in step 5, rank 1 gets into the trouble that the argument names."""

import ctypes
import errno
import os
import signal
import sys
import threading
import time

import numpy as np

from slipstream import comm

LONG_SECONDS = 600.0
STEP, CULPRIT = 5, 1


def raise_error() -> None:
    """Raise an exception of the script."""
    raise ValueError("bad sample 17")


def fill_disk() -> None:
    """Raise what a write to a full disk raises."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "step-00000020")


def misuse() -> None:
    """Raise one of Slipstream's own errors, which says what to do."""
    comm.allreduce(np.zeros(1), op="median")


def raise_everywhere() -> None:
    """Raise nothing here; every rank raises after the step."""


def raise_in_thread() -> None:
    """Raise in another thread, and leave the loop."""
    thread = threading.Thread(target=raise_error, name="loader")
    thread.start()
    thread.join()
    time.sleep(LONG_SECONDS)


def run_out_of_memory() -> None:
    """Ask for more memory than there is."""
    bytearray(1 << 60)


def kill() -> None:
    """End without a chance to write anything."""
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    """Stop, as Ctrl-Z does."""
    os.kill(os.getpid(), signal.SIGSTOP)


def crash() -> None:
    """Read memory that does not exist."""
    ctypes.string_at(0)


def get_stuck() -> None:
    """Stay in the code of this rank."""
    time.sleep(LONG_SECONDS)


def leave() -> None:
    """End the script early."""
    sys.exit(3)


def abort() -> None:
    """End the group for all ranks."""
    comm.world().abort("the loss is not finite")


def differ() -> None:
    """Pass another size in this step."""
    comm.allreduce(np.ones(999, dtype=np.float32), name=f"gradient {STEP}")


def nothing() -> None:
    """Go on."""


def train(trouble: str) -> None:
    """Reduce for a long time."""
    data = np.ones(1000, dtype=np.float32)
    for step in range(10_000):
        if step == STEP and comm.rank() == CULPRIT:
            globals()[trouble]()
        comm.allreduce(data, name=f"gradient {step}")
        if step == STEP and trouble == "raise_everywhere":
            raise_error()
        if step == STEP:
            print("step", flush=True)
        time.sleep(0.01)


if __name__ == "__main__":
    comm.init()
    train(sys.argv[1])
