"""What is wrong with hosts, and what to mend first."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from slipstream.cluster.doctor.examination import (
    FIRST_PORT,
    LAST_PORT,
    Examination,
    HostFindings,
    PairFindings,
)
from slipstream.cluster.engines.probe import MAX_SKEW_SECONDS

# Clocks that differ by more make logs of several hosts hard to compare.
NOTED_SKEW_SECONDS = 1.0
# A pair is called slow below this share of the median pair's bandwidth.
SLOW_SHARE = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One problem of hosts.

    Args:
        where: Host, or pair of hosts.
        text: Description of the problem.
        remedy: Advice on what to do.
        stops_jobs: Whether a job on these hosts fails because of it.
    """

    where: str
    text: str
    remedy: str
    stops_jobs: bool


def problems_of(found: Examination, version: str) -> list[Problem]:
    """Return the problems of hosts; the first one is to be mended first.

    Args:
        found: Findings on the hosts and pairs.
        version: Version of Slipstream on this machine.
    """
    problems = [problem for host in found.hosts for problem in _host_problems(host, version)]
    problems += [problem for pair in found.pairs for problem in _pair_problems(pair)]
    problems += _clock_problems(found)
    problems += _speed_problems(found)
    return sorted(problems, key=lambda problem: not problem.stops_jobs)


def _host_problems(host: HostFindings, version: str) -> Iterator[Problem]:
    if host.error:
        yield Problem(
            where=host.name,
            text=host.error,
            remedy="mend this first; its network was not measured",
            stops_jobs=True,
        )
        return
    if tuple(map(int, host.python.split(".")[:2])) < (3, 10):
        yield Problem(
            where=host.name,
            text=f"Python is {host.python}",
            remedy="install Python 3.10 or newer, or name one with --python",
            stops_jobs=True,
        )
    if host.slipstream != version:
        has = f"Slipstream is {host.slipstream}" if host.slipstream else "Slipstream is missing"
        yield Problem(
            where=host.name,
            text=f"{has}, here it is {version}",
            remedy=f"pip install slipstream=={version}; job files install it by themselves",
            stops_jobs=bool(host.slipstream),
        )
    missing = [tool for tool in ("tmux", "rsync") if tool not in host.tools]
    if missing:
        yield Problem(
            where=host.name,
            text=f"{' and '.join(missing)} missing",
            remedy="install with the system's package manager; job files need it",
            stops_jobs=False,
        )


def _pair_problems(pair: PairFindings) -> Iterator[Problem]:
    remedies = {
        "name unknown": f"let {pair.source} resolve the name {pair.target} (DNS or /etc/hosts)",
        "small only": "set the same MTU on all hosts and switches; large packets get lost",
        "dropped": f"open ports {FIRST_PORT} to {LAST_PORT} of {pair.target} in its firewall",
        "refused": f"allow ports {FIRST_PORT} to {LAST_PORT} of {pair.target} in its firewall",
        "unreachable": f"mend the route or the address between {pair.source} and {pair.target}",
    }
    if pair.state == "open":
        return
    if pair.state == "no answer":
        yield Problem(
            where=f"{pair.source} to {pair.target}",
            text=pair.text,
            remedy="look at this host, and examine the hosts again",
            stops_jobs=True,
        )
        return
    remedy = remedies[pair.state]
    if pair.state == "dropped" and not pair.ssh_reached:
        remedy = remedies["unreachable"]
    ssh = "answers" if pair.ssh_reached else "does not answer either"
    beside = "" if pair.state == "small only" else f"; its ssh port {ssh}"
    yield Problem(
        where=f"{pair.source} to {pair.target}",
        text=f"port {pair.port}: {pair.state} ({pair.text}){beside}",
        remedy=remedy,
        stops_jobs=True,
    )


def _clock_problems(found: Examination) -> Iterator[Problem]:
    """Compare each clock with the median clock of the hosts and this machine."""
    measured = [host for host in found.hosts if not host.error]
    middle = statistics.median_low([0.0, *(host.skew for host in measured)])
    for host in measured:
        ahead = host.skew - middle
        least = abs(ahead) - host.skew_error
        if least > NOTED_SKEW_SECONDS:
            yield Problem(
                where=host.name,
                text=f"its clock is {ahead:+.1f} s off (± {host.skew_error * 1e3:.0f} ms)",
                remedy="set up NTP",
                stops_jobs=least > MAX_SKEW_SECONDS,
            )


def _speed_problems(found: Examination) -> Iterator[Problem]:
    speeds = {pair: pair.bandwidth for pair in found.pairs if pair.bandwidth is not None}
    if not speeds:
        return
    middle = statistics.median_high(speeds.values())
    for pair, speed in speeds.items():
        if speed < SLOW_SHARE * middle:
            yield Problem(
                where=f"{pair.source} to {pair.target}",
                text=f"{speed * 8e-6:.0f} Mbit/s, the median pair has {middle * 8e-6:.0f}",
                remedy="look at the link speed (ethtool) and at other traffic",
                stops_jobs=False,
            )
