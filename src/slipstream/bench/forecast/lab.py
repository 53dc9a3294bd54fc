"""Measurement of the lab's links and of this machine's processors, independent of the forecast.

All hosts of a lab share the processors of one machine. Therefore allreduces are timed twice: on
slow links, which limit their speed, and on fast links, where the processors limit it. Both times
give the performance with other link rates and other numbers of hosts.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipstream.bench.comm.measure import CommSpec, measure
from slipstream.bench.forecast.step import Hosts
from slipstream.bench.limits import GOODPUT
from slipstream.forecast.calibrate.line import LinkSpeed, TimedAllReduce, fit
from slipstream.forecast.hardware import Link
from slipstream.lab import Lab, LabSpec
from slipstream.lab.compare import BACKENDS

HOSTS = 4
SLOW, FAST = "1gbit", "40gbit"
SIZES = (250_000, 1_000_000, 4_000_000, 16_000_000, 48_000_000)
QUICK_SIZES = (SIZES[0], SIZES[3])
LIMIT_SECONDS = 120.0  # time limit in seconds for the measurement of updates

OnNote = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wires:
    """Measured performance of one backend on the lab's links.

    Args:
        share: Payload rate relative to the link's nominal rate, 0 to 1.
        latency: Seconds of one step of a collective.
        processed: Bytes per second that the processors of the machine can send for all hosts
            together, on links of any rate.
    """

    share: float
    latency: float
    processed: float

    def link(self, bits_per_second: float, hosts: int) -> Link:
        """Return the link of each host.

        A transfer takes time on the link and on the processors. If both times are similar, they do
        not overlap completely. Therefore the total time is modelled as the root of the sum of the
        two squared times.

        Args:
            bits_per_second: Nominal bit rate of the link.
            hosts: Number of hosts, which share the machine's processors.
        """
        wire = self.share * bits_per_second / 8
        rate = (wire**-2 + (self.processed / hosts) ** -2) ** -0.5
        return Link(
            name="lab",
            kind="network",
            gbyte_per_s=rate / 1e9,
            latency_us=max(self.latency * 1e6, 1e-3),
            source="measured",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LabNumbers:
    """Measured performance of a lab.

    Args:
        wires: Measured performance of the links, by backend.
        updated: Bytes per second that the optimizers of all ranks together read and write.
        inside: Speed of the link between the ranks of one host: its latency, and the total rate of
            all these ranks; None if each host has one rank.
    """

    wires: Mapping[str, Wires]
    updated: float
    inside: LinkSpeed | None = None

    def hosts(self, backend: str, spec: LabSpec) -> Hosts:
        """Return the hosts of a lab in the form that a forecast needs.

        Args:
            backend: Backend of torch.distributed.
            spec: Description of the lab.
        """
        link = self.wires[backend].link(spec.link_rates[0], spec.hosts)
        return Hosts(
            count=spec.hosts,
            per_host=spec.ranks_per_host,
            between=link,
            inside=link if self.inside is None else _link(self.inside, spec.world_size),
            update_bytes_per_second=self.updated / spec.world_size,
        )


def _link(line: LinkSpeed, ranks: int) -> Link:
    return Link(
        name="lab, one host",
        kind="device",
        gbyte_per_s=line.rate / ranks / 1e9,
        latency_us=max(line.latency * 1e6, 1e-3),
        source="measured",
    )


def calibrate(tell: OnNote, *, several: bool = False, quick: bool = False) -> LabNumbers:
    """Measure the lab, which takes about a minute, or half a minute if `quick`.

    Args:
        tell: Function that receives the name of the next measurement.
        several: Whether to measure the link between ranks of one host, too (default False).
        quick: Whether to send only two message sizes, for few rounds, which is less accurate for
            fast links (default False).

    Raises:
        UnsupportedError: the lab cannot be made, or PyTorch is not installed.
        SlipstreamError: a rank failed.
    """
    slow, fast = (_lines(rate, tell, quick) for rate in (SLOW, FAST))
    tell("calibration: optimizers")
    updated = _updated()
    return LabNumbers(
        wires={name: _wires(slow[name], fast[name]) for name in BACKENDS},
        updated=updated,
        inside=_inside(tell, quick) if several else None,
    )


def _messages(quick: bool) -> dict[str, Any]:
    """Return the fields of a `CommSpec` that define message sizes and numbers of calls."""
    return {"sizes": QUICK_SIZES, "rounds": 2, "warmup": 1} if quick else {"sizes": SIZES}


def _inside(tell: OnNote, quick: bool) -> LinkSpeed:
    """Return the latency per step of an allreduce inside a host, and its ranks' total rate."""
    report = measure(
        CommSpec(local=HOSTS, peers=(), **_messages(quick)),
        lambda note: tell(f"calibration inside a host: {note}"),
    )
    line = fit([TimedAllReduce(HOSTS, row.samples.size, row.samples.median) for row in report.rows])
    return LinkSpeed(line.latency, line.rate * HOSTS)


def _lines(rate: str, tell: OnNote, quick: bool) -> dict[str, LinkSpeed]:
    """Return the latency and the rate of each backend on links of a given nominal rate."""
    lab = LabSpec(hosts=HOSTS, rate=rate)
    spec = CommSpec(lab=lab, peers=("gloo",), **_messages(quick))
    report = measure(spec, lambda note: tell(f"calibration at {rate}: {note}"))
    return {
        name: fit(
            [
                TimedAllReduce(HOSTS, row.samples.size, row.samples.median)
                for row in report.rows
                if row.samples.contender == name
            ]
        )
        for name in BACKENDS
    }


def _wires(slow: LinkSpeed, fast: LinkSpeed) -> Wires:
    """Return the performance of a backend, from the latency and rate on slow and on fast links.

    Headers limit the payload rate of a link. A rate that is fitted to a few calls may exceed the
    payload rate of the link, so the fitted rate is capped.
    """
    nominal = LabSpec(rate=SLOW).link_rates[0] / 8
    payload = nominal * GOODPUT
    wire = max(slow.rate**-2 - fast.rate**-2, payload**-2) ** -0.5
    return Wires(share=wire / nominal, latency=slow.latency, processed=fast.rate * HOSTS)


def _updated() -> float:
    with tempfile.TemporaryDirectory(prefix="slipstream-forecast-") as folder:
        output = Path(folder) / "seconds.json"
        with Lab(LabSpec(hosts=HOSTS)) as lab:
            lab.run(
                [sys.executable, "-m", "slipstream.bench.forecast.update_rank", str(output)],
                timeout_seconds=LIMIT_SECONDS,
            )
        return HOSTS * float(json.loads(output.read_text())["bytes_per_second"])


def as_json(numbers: LabNumbers) -> dict[str, object]:
    """Return the measured performance as a JSON-compatible dictionary."""
    return dataclasses.asdict(numbers)
