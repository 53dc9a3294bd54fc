"""Ranks that find one another through what the launcher told them, and add up their numbers."""

import os

import numpy as np

from slipstream import comm
from slipstream.settings import Settings, detect_launcher


def main() -> None:
    """Meet, and print what the launcher said."""
    launch = detect_launcher()
    key = Settings.from_environment().load_job_key()
    print(
        f"rank {launch.rank}/{launch.world_size} local {launch.local_rank} from {launch.source}"
        f" key {len(key or b'')} threads {os.environ.get('OMP_NUM_THREADS')}"
    )
    comm.init()
    came = np.zeros(comm.size(), dtype=np.int64)
    came[comm.rank()] = comm.rank() + 1
    comm.allreduce(came)
    if comm.rank() == 0:
        print("met", *(came - 1))
    comm.shutdown()


if __name__ == "__main__":
    main()
