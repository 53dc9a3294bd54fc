"""Prints a line ten times a second, and makes no step after the third at the first start."""

import itertools
import os
import time

from slipstream.steps import report_step

starts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
for number in itertools.count():
    step = number if starts else min(number, 3)
    report_step(step)
    print(f"alive at step {step}", flush=True)
    if starts and number == 5:
        break
    time.sleep(0.1)
