"""The head on hosts that a scheduler lends, takes away and may lend again.

A signal there is no end of the run: the scheduler takes the hosts, and starts the head again on
others. Whether the user has ended the run is known to the engine, which has told the scheduler.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from slipstream.cluster.head.encryption import server_context
from slipstream.cluster.head.journal import Journal
from slipstream.cluster.head.placement import ENDED, RunPlacement
from slipstream.cluster.head.supervisor import FinalState, Supervisor
from slipstream.cluster.head.switchboard import Switchboard
from slipstream.cluster.launch.ports import find_free_port_pair
from slipstream.errors import SlipstreamError

TAKEN_CODE = 75  # EX_TEMPFAIL of sysexits.h: start the head again


def with_head_here(placement: RunPlacement, hosts: tuple[str, ...]) -> RunPlacement:
    """Return a placement whose head is on this host, at a port that is free now.

    Args:
        placement: Placement of the run.
        hosts: Names of the hosts, of which the first one gets rank 0.
    """
    listed = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False)
    heads = (*listed.stdout.split(), socket.gethostname())
    return replace(placement, hosts=hosts, heads=heads, head_port=find_free_port_pair())


def run_lent_head(
    placement: RunPlacement,
    folder: Path,
    journal: Journal,
    problem: Callable[[], str] = str,
) -> int:
    """Run the head; return the exit code of the job, or TAKEN_CODE if the hosts are taken away.

    Args:
        placement: Placement of the run, which names this host as the head's.
        folder: Folder of the run on this host.
        journal: Journal of the run, which is closed at the end.
        problem: Function that returns why hosts never come, for which this process then gets a
            signal, or "" (the default).
    """
    try:
        board = Switchboard(placement.head_port, server_context(placement), journal.host)
    except SlipstreamError as error:
        return _end(FinalState("failed", 1, str(error)), folder, journal)
    try:
        result = Supervisor(placement, folder, journal, board).run()
    except SlipstreamError as error:
        result = FinalState("failed", 1, str(error))
    if result.state == "cancelled" and (reason := problem()):
        result = FinalState("failed", 1, reason)
    is_over = result.state != "cancelled"
    board.close(is_over=is_over)
    if is_over:
        return _end(result, folder, journal)
    journal.state("retrying", "a signal came: the hosts of the head are taken away")
    journal.close()
    return TAKEN_CODE


def _end(result: FinalState, folder: Path, journal: Journal) -> int:
    journal.state(result.state, result.reason, exit_code=result.exit_code)
    journal.close()
    (folder / ENDED).touch()
    return result.exit_code
