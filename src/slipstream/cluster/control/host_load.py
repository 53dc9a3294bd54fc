"""How busy a host is: processors, memory and GPUs, measured on the host by its own Python."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from slipstream.cluster.control.reached_hosts import ReachedHost
from slipstream.errors import SlipstreamError

NUM_THREADS = 16
LOOK_SECONDS = 15.0

_SCRIPT = """\
exec python3 - <<'END'
import json, os, subprocess, time
def ticks():
    with open("/proc/stat") as file:
        numbers = [int(word) for word in file.readline().split()[1:9]]
    return sum(numbers), numbers[3] + numbers[4]
def memory():
    with open("/proc/meminfo") as file:
        pairs = dict(line.split(":") for line in file)
    return [int(pairs[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable")]
def gpus():
    query = "name,utilization.gpu,memory.used,memory.total,power.draw"
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=" + query, "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [[part.strip() for part in line.split(",")] for line in listed.stdout.splitlines()]
first = ticks()
time.sleep(0.3)
total, idle = (now - then for now, then in zip(ticks(), first))
print(json.dumps(dict(cores=os.cpu_count(), load=os.getloadavg()[0], memory=memory(), gpus=gpus(),
                      busy=1 - idle / total if total else 0.0)))
END
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuLoad:
    """The load of one GPU.

    Args:
        name: Name of the GPU.
        busy: Share of the last moment in which it computed, from 0 to 1; None if it is not known.
        memory_used: Used memory in bytes.
        memory_total: Memory in bytes.
        watts: Electrical power in watts, or None if it is not known.
    """

    name: str
    busy: float | None
    memory_used: float
    memory_total: float
    watts: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class HostLoad:
    """The load of one host.

    Args:
        host: Name of the host.
        problem: Reason why nothing is known, or "".
        cores: Number of processors.
        busy: Share of 0.3 seconds in which the processors worked, from 0 to 1.
        load: Number of processes that wait for a processor or use one, over the last minute.
        memory_used: Used memory in bytes.
        memory_total: Memory in bytes.
        gpus: Load of each GPU.
    """

    host: str
    problem: str = ""
    cores: int = 0
    busy: float = 0.0
    load: float = 0.0
    memory_used: int = 0
    memory_total: int = 0
    gpus: tuple[GpuLoad, ...] = ()


def host_loads(hosts: Sequence[ReachedHost]) -> list[HostLoad]:
    """Return the load of all hosts, measured at the same time."""
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        return list(pool.map(_host_load, hosts))


def _host_load(host: ReachedHost) -> HostLoad:
    try:
        answer = host.run(_SCRIPT, what="looking at the load", seconds=LOOK_SECONDS)
    except SlipstreamError as error:
        return HostLoad(host=host.name, problem=str(error))
    return parse_load(host.name, answer)


def parse_load(host: str, answer: str) -> HostLoad:
    """Return the load that a host has printed as JSON.

    Args:
        host: Name of the host.
        answer: Output of the script, whose last line is the JSON text.
    """
    values: dict[str, Any] = json.loads(answer.splitlines()[-1])
    total, available = values["memory"]
    return HostLoad(
        host=host,
        cores=values["cores"],
        busy=values["busy"],
        load=values["load"],
        memory_used=total - available,
        memory_total=total,
        gpus=tuple(_gpu(fields) for fields in values["gpus"]),
    )


def _gpu(fields: Sequence[str]) -> GpuLoad:
    name, busy, used, total, watts = fields
    percent = _number(busy)
    return GpuLoad(
        name=name,
        busy=None if percent is None else percent / 100.0,
        memory_used=(_number(used) or 0.0) * 2**20,
        memory_total=(_number(total) or 0.0) * 2**20,
        watts=_number(watts),
    )


def _number(text: str) -> float | None:
    """Return a number of nvidia-smi, which prints "[N/A]" for an unknown one."""
    try:
        return float(text)
    except ValueError:
        return None
