"""Measures the lab's links and this machine's processors, without the judged models.

All hosts of a lab share the processors of one machine. So all-reduces are timed twice, on slow
links, where the links set the time, and on fast ones, where the processors do; what a link of
another rate and another number of hosts reach follows from both.
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
LIMIT_SECONDS = 120.0

OnNote = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wires:
    """Measured links of one backend in the lab.

    Args:
        share: Payload rate as a share of the link's nominal rate, 0 to 1.
        latency: seconds of one step of a collective.
        processed: bytes per second that all hosts together send, however fast the links are.
    """

    share: float
    latency: float
    processed: float

    def link(self, bits_per_second: float, hosts: int) -> Link:
        """Return the link of each host.

        Where links and processors need about as long, neither is always busy: seconds add up as
        the sides of a right triangle do.

        Args:
            bits_per_second: nominal.
            hosts: Hosts that share the machine's processors.
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
    """Measured numbers of a lab.

    Args:
        wires: Measured links by backend.
        updated: bytes per second that the optimizers of all ranks read and write together.
        inside: Link between the ranks of one host, with the rate that all of them send together;
            None if each host has one rank.
    """

    wires: Mapping[str, Wires]
    updated: float
    inside: LinkSpeed | None = None

    def hosts(self, backend: str, spec: LabSpec) -> Hosts:
        """Return a lab as the forecast sees it.

        Args:
            backend: Backend of torch.distributed.
            spec: Settings of the lab.
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
    """Measure the lab; block for about a minute, or half of it if quick.

    Args:
        tell: is told what is measured next.
        several: hosts are to have several ranks, so ranks of one host are measured too.
        quick: messages of two sizes are sent, two times each, which says less about fast links.

    Raises:
        UnsupportedError: the lab cannot be made, or there is no PyTorch.
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
    """Return the fields of a CommSpec for the messages and their number."""
    return {"sizes": QUICK_SIZES, "rounds": 2, "warmup": 1} if quick else {"sizes": SIZES}


def _inside(tell: OnNote, quick: bool) -> LinkSpeed:
    """Return of ranks of one host the latency of a step, and the rate of all together."""
    report = measure(
        CommSpec(local=HOSTS, peers=(), **_messages(quick)),
        lambda note: tell(f"calibration inside a host: {note}"),
    )
    line = fit([TimedAllReduce(HOSTS, row.samples.size, row.samples.median) for row in report.rows])
    return LinkSpeed(line.latency, line.rate * HOSTS)


def _lines(rate: str, tell: OnNote, quick: bool) -> dict[str, LinkSpeed]:
    """Return latency and rate of each backend on links of a rate."""
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
    """Return the shares of links and processors, from a line on slow and one on fast links.

    No backend can use more of a link than headers leave, but a fit of few calls may exceed that.
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
    """Return the measured numbers, for programs."""
    return dataclasses.asdict(numbers)
