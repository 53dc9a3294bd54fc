"""This host as a machine of the queue."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess

from slipstream.cluster.outside import outside
from slipstream.cluster.queue.shapes import QueueGpu, QueueMachine
from slipstream.errors import ConfigError
from slipstream.units import MIB

QUERY = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")


def this_host() -> QueueMachine:
    """Return this host with its processors, memory and NVIDIA GPUs.

    Raises:
        ConfigError: the driver is installed and does not answer.
    """
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return QueueMachine(
        name=socket.gethostname(),
        gpus=_gpus(),
        cpus=len(os.sched_getaffinity(0)),
        memory_mib=pages // MIB,
    )


def _gpus() -> tuple[QueueGpu, ...]:
    if shutil.which(QUERY[0]) is None:
        return ()
    with outside("nvidia-smi"):
        done = subprocess.run(QUERY, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(
            f"{' '.join(QUERY)} failed: {(done.stderr or done.stdout).strip()}; mend the driver, or"
            " add the machine with: slipstream queue machines add --local"
        )
    pairs = [line.rpartition(",") for line in done.stdout.splitlines() if line.strip()]
    return tuple(QueueGpu(kind=name.strip(), memory_mib=int(size)) for name, _, size in pairs)
