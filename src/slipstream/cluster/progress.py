"""Reports of progress: samples per second, which a job adds to a file.

The queue scales a job by them, and a run that has a plan of the forecaster is compared with it.
"""

from __future__ import annotations

import json
import os
import statistics
from collections import defaultdict
from pathlib import Path

from slipstream.settings import progress_file

# Number of the newest reports for a number of hosts whose median counts. The first reports after a
# start are slow, and the median of 5 leaves two of them out.
NUM_REPORTS = 5


def report_progress(samples_per_second: float, num_hosts: int) -> None:
    """Tell the queue and the record of the run how fast a job is.

    Rank 0 calls it every few seconds. Nothing happens outside the queue and `slipstream run` with
    an engine, and if rank 0 is not on the host of the run's head.

    Args:
        samples_per_second: Samples per second of all ranks together.
        num_hosts: Number of hosts that the job uses now.
    """
    path = progress_file()
    if path is None or not path.parent.exists():
        return
    line = json.dumps({"hosts": num_hosts, "samples_per_second": samples_per_second}) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def measured_rates(path: Path) -> dict[int, float]:
    """Return the samples per second of a job by its number of hosts.

    Args:
        path: File of reports; it need not exist. A last line without an end is left out.
    """
    if not path.exists():
        return {}
    reports: defaultdict[int, list[float]] = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            report = json.loads(line)
            reports[int(report["hosts"])].append(float(report["samples_per_second"]))
    return {hosts: statistics.median(rates[-NUM_REPORTS:]) for hosts, rates in reports.items()}
