"""`python -m slipstream.cluster.head.in_pod SECRET WORK INDEX`: run a run in a pod of Kubernetes.

The pod with index 0 also runs the head, writes the journal to its log, and waits at the end until
the client has the outputs of the job. The exit code is 0 after
a success and FAILED_CODE after a failure for good; after any other one, Kubernetes starts another
pod.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from slipstream.cluster.head.allocation import run_lent_head
from slipstream.cluster.head.bundle import CODE, unpack_code
from slipstream.cluster.head.journal import Journal
from slipstream.cluster.head.outputs import wait_for_client
from slipstream.cluster.head.placement import ENDED, FILE_NAME, parse_placement
from slipstream.errors import SlipstreamError

FAILED_CODE = 3
DAEMON_END_SECONDS = 10.0


def run_in_pod(secret: Path, work: Path, index: int) -> int:
    """Run this pod's part of a run; return the exit code of the pod.

    Args:
        secret: Folder with the placement and the code.
        work: Folder for the run in this pod.
        index: Number of this pod.
    """
    placement = parse_placement((secret / FILE_NAME).read_text())
    placement.write(work)
    try:
        files = {path.name: path.read_bytes() for path in secret.iterdir() if path.is_file()}
        unpack_code(files, work / CODE)
    except SlipstreamError as error:
        return _fail(str(error), index)
    command = ["-m", "slipstream.cluster.head.daemon", str(work), placement.hosts[index]]
    if index > 0:
        os.execv(sys.executable, [sys.executable, *command])
    daemon = subprocess.Popen([sys.executable, *command], stdout=sys.stderr)
    code = run_lent_head(placement, work, Journal(None))
    try:
        daemon.wait(DAEMON_END_SECONDS)
    except subprocess.TimeoutExpired:
        daemon.terminate()
        daemon.wait()
    is_over = (work / ENDED).exists()
    if is_over and placement.outputs:
        wait_for_client(placement.outputs_wait_seconds)
    has_failed = is_over and code != 0
    return FAILED_CODE if has_failed else code


def _fail(reason: str, index: int) -> int:
    if index == 0:
        Journal(None).state("failed", reason, exit_code=1)
    print(reason, file=sys.stderr)
    return FAILED_CODE


def main() -> None:
    """Run the part of the command line."""
    secret, work, index = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    os.chdir("/")
    sys.exit(run_in_pod(secret, work, index))


if __name__ == "__main__":
    main()
