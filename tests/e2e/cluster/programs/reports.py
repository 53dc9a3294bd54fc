"""Tells a speed every tenth of a second, for so many seconds: `SECONDS`."""

import sys
import time

from slipstream.cluster import report_progress

for _ in range(10 * int(sys.argv[1])):
    report_progress(10.0, 1)
    time.sleep(0.1)
