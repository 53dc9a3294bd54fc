"""Counts steps up to a number; SIGTERM makes it keep the step in a file, and end: `FILE STEPS`."""

import os
import signal
import sys
import time
from pathlib import Path

STOPPED = 75
KEPT, NUM_STEPS = Path(f"{sys.argv[1]}.{os.environ['RANK']}"), int(sys.argv[2])
step = int(KEPT.read_text()) if KEPT.exists() else 0


def stop(*_: object) -> None:
    """Keep the step, and end."""
    KEPT.write_text(str(step))
    os._exit(STOPPED)


signal.signal(signal.SIGTERM, stop)
print(f"begins at {step}", flush=True)
while step < NUM_STEPS:
    print(f"step {step}", flush=True)
    time.sleep(0.1)
    step += 1
