"""One rank of the job that false_alarms.py watches: `false_alarms_rank.py SEED SECONDS`.

Four ranks each are on one of two hosts, so connections are shared memory and TCP. The even and the
odd ranks are groups, which sum arrays of many sizes, each in its own order of pauses; then all
ranks meet. In a pause, a rank sleeps, or computes without a call of the library.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time

import numpy as np

from slipstream import comm
from slipstream.comm import worlds
from slipstream.errors import PeerError
from slipstream.settings import detect_launcher

RANK = detect_launcher().rank
SEED, SECONDS = int(sys.argv[1]), float(sys.argv[2])
PAUSES = (0.0, 0.0, 0.0, 0.001, 0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0)  # seconds
SIZES = (1, 1000, 100_000, 2_500_000)  # elements of four bytes


def pause(draw: random.Random) -> None:
    """Do something else for a while."""
    seconds = draw.choice(PAUSES)
    if draw.random() < 0.7:
        time.sleep(seconds)
        return
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


def train(group: comm.Group) -> int:
    """Sum arrays until the time is over; return the number of sums."""
    own, common = random.Random(SEED * 100 + RANK), random.Random(SEED + RANK % 2)
    end = time.monotonic() + SECONDS
    count = 0
    goes_on = np.ones(1, np.int32)
    while goes_on[0]:
        for _ in range(common.randrange(1, 20)):
            size = common.choice(SIZES)
            result = group.allreduce(np.ones(size, np.float32))
            assert result[0] == result[-1] == group.size, "a sum is wrong"
            count += 1
            if own.random() < 0.1:
                pause(own)
        goes_on[0] = time.monotonic() < end
        comm.broadcast(goes_on, 0)
        count += 1
    return count


def main() -> None:
    """Train, and report what happened."""
    os.environ["SLIPSTREAM_HOST_ID"] = f"host {RANK // 4}"
    comm.init()
    group = comm.group(list(range(RANK % 2, comm.size(), 2)))
    problem, count = "", 0
    try:
        count = train(group)
    except PeerError as error:
        problem = str(error)
    lost = list(worlds.current_world().engine.runtime.lost_ranks())
    report = {"rank": RANK, "sums": count, "lost": len(lost), "problem": problem}
    print(json.dumps(report), flush=True)
    if not problem:
        comm.barrier()
    comm.shutdown()


main()
