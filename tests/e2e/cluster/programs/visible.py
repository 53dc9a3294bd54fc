"""Prints the GPUs that a rank may use, after a time in which another job starts."""

import os
import time

print(f"{os.uname().nodename} sees GPU {os.environ['CUDA_VISIBLE_DEVICES']}", flush=True)
time.sleep(3.0)
