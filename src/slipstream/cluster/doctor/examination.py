"""What is measured on hosts and between each pair of them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from slipstream.cluster.doctor.remote import MeasuringHost
from slipstream.cluster.engines.ssh_host import SshHost
from slipstream.errors import SlipstreamError

# The ports of the launcher's ranks (cluster.launch.ports).
FIRST_PORT, LAST_PORT = 20000, 29999
SSH_PORT = 22
_CLOCK_READINGS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFindings:
    """What was found on a host.

    Args:
        name: Name of the host.
        error: Reason why nothing could be measured, or "".
        python: Version of Python, or "".
        slipstream: Version of Slipstream, or "" if it is not installed.
        tools: Names of the tools that it has, of tmux, rsync and git.
        cores: Number of processors.
        memory: Memory in bytes.
        disk: Free disk space at the home folder in bytes.
        gpus: Name of each GPU.
        skew: Time in seconds by which its clock is ahead of this machine's.
        skew_error: Largest error of `skew` in seconds.
    """

    name: str
    error: str = ""
    python: str = ""
    slipstream: str = ""
    tools: tuple[str, ...] = ()
    cores: int = 0
    memory: int = 0
    disk: int = 0
    gpus: tuple[str, ...] = ()
    skew: float = 0.0
    skew_error: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PairFindings:
    """What was found from one host to another.

    Args:
        source: Name of the host that connects.
        target: Name of the host that listens.
        port: Port of the target at which it listened.
        state: Result: open, small only, name unknown, dropped, refused, unreachable, or no answer
            (of a measuring program).
        latency: Median of round trips in seconds, or None.
        bandwidth: Speed from source to target in bytes a second, or None.
        mtu: Largest packet of the route in bytes, or None.
        ssh_reached: Whether the ssh port of the target answers the source.
        text: Message of the operating system or of the program, or "".
    """

    source: str
    target: str
    port: int
    state: str
    latency: float | None
    bandwidth: float | None
    mtu: int | None
    ssh_reached: bool
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Examination:
    """All that was found.

    Args:
        hosts: Findings on each host.
        pairs: Findings from each host that could be measured to each other one.
    """

    hosts: tuple[HostFindings, ...]
    pairs: tuple[PairFindings, ...]


def examine(
    hosts: Sequence[SshHost], python: str, seconds: float, tell: Callable[[str], None]
) -> Examination:
    """Return what is found on hosts and between each pair of them; blocks for minutes.

    Pairs are measured one after the other, so that they do not disturb one another.

    Args:
        hosts: Hosts to examine.
        python: Path of Python on the hosts; where it is missing, python3 is used.
        seconds: Duration in seconds of each measurement of bandwidth.
        tell: Function that gets the current action.
    """
    tell("connecting")
    with ThreadPoolExecutor(len(hosts)) as pool:
        opened = list(pool.map(_open, hosts, repeat(python)))
    measuring = [host for host in opened if isinstance(host, MeasuringHost)]
    try:
        found = [_look(host) if isinstance(host, MeasuringHost) else host for host in opened]
        lost = {host.name for host in found if host.error}
        there = [host for host in measuring if host.ssh.name not in lost]
        return Examination(hosts=tuple(found), pairs=tuple(_measure_pairs(there, seconds, tell)))
    finally:
        for host in measuring:
            host.close()


def _open(host: SshHost, python: str) -> MeasuringHost | HostFindings:
    try:
        return MeasuringHost(host, python)
    except SlipstreamError as error:
        return HostFindings(name=host.name, error=str(error))


def _look(host: MeasuringHost) -> HostFindings:
    try:
        facts = host.ask("facts")
        skew, error = min((_read_clock(host) for _ in range(_CLOCK_READINGS)), key=lambda r: r[1])
    except SlipstreamError as lost:
        return HostFindings(name=host.ssh.name, error=str(lost))
    lists = {name: tuple(facts.pop(name)) for name in ("tools", "gpus")}
    return HostFindings(name=host.ssh.name, **lists, **facts, skew=skew, skew_error=error)


def _read_clock(host: MeasuringHost) -> tuple[float, float]:
    """Return by how many seconds a clock is ahead, and the largest error of that."""
    wall, began = time.time(), time.monotonic()
    clock = host.ask("clock")["clock"]
    half = (time.monotonic() - began) / 2
    return clock - (wall + half), half


def _measure_pairs(
    hosts: Sequence[MeasuringHost], seconds: float, tell: Callable[[str], None]
) -> list[PairFindings]:
    token = secrets.token_hex(16)
    found: list[PairFindings] = []
    num_pairs = len(hosts) * (len(hosts) - 1)
    for target in hosts:
        for source in hosts:
            if source is not target:
                name = f"{source.ssh.name} to {target.ssh.name}"
                tell(f"measuring {name}, pair {len(found) + 1} of {num_pairs}")
                found.append(_measure_pair(source, target, token, seconds))
    return found


def _measure_pair(
    source: MeasuringHost, target: MeasuringHost, token: str, seconds: float
) -> PairFindings:
    """Return the findings on a pair; a host that is lost meanwhile is one of them."""
    names = {"source": source.ssh.name, "target": target.ssh.name}
    address = target.ssh.login.rpartition("@")[2]
    port = 0
    answer: dict[str, Any]
    try:
        port = target.ask("listen", first=FIRST_PORT, last=LAST_PORT, token=token)["port"]
        answer = source.ask("measure", address=address, port=port, token=token, seconds=seconds)
        is_open = answer["state"] in ("open", "small only")
        reached = is_open or source.ask("is_reached", address=address, port=SSH_PORT)["reached"]
    except SlipstreamError as error:
        answer = {"state": "no answer", "text": str(error)}
        answer.update(latency=None, bandwidth=None, mtu=None)
        reached = False
    return PairFindings(**names, port=port, ssh_reached=reached, **answer)
