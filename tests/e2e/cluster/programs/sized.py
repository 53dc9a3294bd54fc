"""Tells the speed of its number of ranks, which a second rank hardly raises; SIGTERM ends it."""

import os
import signal
import time

from slipstream.cluster import report_progress

SPEEDS = {1: 10.0, 2: 11.0}
STOPPED = 75

signal.signal(signal.SIGTERM, lambda *_: os._exit(STOPPED))
count = int(os.environ["WORLD_SIZE"])
print(f"runs on {count}", flush=True)
while True:
    if os.environ["RANK"] == "0":
        report_progress(SPEEDS[count], count)
    time.sleep(0.1)
