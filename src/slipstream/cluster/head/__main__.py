"""`python -m slipstream.cluster.head FOLDER`: run the head of the run whose folder this is.

The exit code is that of the job. A lock on the folder lets no second head start, so a second call
is harmless.
"""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

from slipstream.cluster.head.encryption import server_context
from slipstream.cluster.head.gpu_share import share_variables
from slipstream.cluster.head.journal import Journal
from slipstream.cluster.head.placement import ENDED, JOURNAL, RunPlacement, read_placement
from slipstream.cluster.head.storage.sending import send_buckets_back
from slipstream.cluster.head.supervisor import FinalState, Supervisor
from slipstream.cluster.head.switchboard import Switchboard
from slipstream.errors import SlipstreamError

BUSY_CODE = 75  # EX_TEMPFAIL of sysexits.h: another head runs


def main() -> int:
    """Run the head; return the exit code of the job."""
    folder = Path(sys.argv[1]).absolute()
    os.chdir("/")
    placement = read_placement(folder)
    lock = os.open(folder / "head.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return BUSY_CODE
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    journal = Journal(folder / JOURNAL)
    try:
        result = _supervise(placement, folder, journal)
    except SlipstreamError as error:
        result = FinalState("failed", 1, str(error))
    result = send_buckets_back(placement, journal, result)
    journal.state(result.state, result.reason, exit_code=result.exit_code)
    journal.close()
    (folder / ENDED).touch()
    return result.exit_code


def _supervise(placement: RunPlacement, folder: Path, journal: Journal) -> FinalState:
    if not placement.heads:
        os.environ.update(share_variables(placement.gpu_memory_gib))
        return Supervisor(placement, folder, journal, None).run()
    board = Switchboard(placement.head_port, server_context(placement), journal.host)
    try:
        return Supervisor(placement, folder, journal, board).run()
    finally:
        board.close()


if __name__ == "__main__":
    sys.exit(main())
