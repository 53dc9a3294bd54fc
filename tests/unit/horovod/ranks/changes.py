"""A job of one rank that is made anew again and again: `changes.py CHANGES`.

A line of JSON after three changes, and another after all of them, say what the process has open.
"""

import json
import sys
import threading
from pathlib import Path

import torch

import slipstream.horovod.torch as hvd
from slipstream.horovod.job import renew_job


def report() -> None:
    print(
        json.dumps(
            {
                "threads": threading.active_count(),
                "tasks": len(list(Path("/proc/self/task").iterdir())),
                "files": len(list(Path("/proc/self/fd").iterdir())),
                "pages": int(Path("/proc/self/statm").read_text().split()[1]),
            }
        )
    )


hvd.init()
for number in range(1, int(sys.argv[1]) + 1):
    renew_job()
    hvd.allreduce(torch.ones(1000), name="done")
    hvd.allreduce_async(torch.ones(1000), name="in flight")
    if number in (3, int(sys.argv[1])):
        report()
