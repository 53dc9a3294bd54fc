"""Writes its rank into two folders that are mounted, and into one whose files go to a bucket."""

import os
import sys
import time
from pathlib import Path

rank = os.environ["RANK"]
mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
print(f"{rank} reads {Path('in/first.txt').read_text().strip()}", flush=True)
for folder in sys.argv[2:]:
    Path(folder, f"rank.{rank}").write_text(f"{rank} {folder in mounted}")
    print(f"{rank} wrote into {folder}", flush=True)
time.sleep(float(sys.argv[1]))
