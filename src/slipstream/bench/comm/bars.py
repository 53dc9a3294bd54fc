"""Performance targets of collectives, and whether this machine meets them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from slipstream.bench.comm.limits import GOODPUT
from slipstream.bench.comm.measure import RING, CommReport, CommSpec, OnNote, measure
from slipstream.bench.comm.table import as_json, title
from slipstream.bench.environment import environment_line
from slipstream.bench.tables import make_table
from slipstream.errors import SlipstreamError
from slipstream.lab import LabSpec
from slipstream.units import format_bytes

LARGE, SMALL = 100_000_000, 4_000
OURS = "slipstream"
SETTLING_CALLS = 8  # warm-up calls, in which the engine chooses the number of streams


@dataclass(frozen=True, kw_only=True, slots=True)
class CommBar:
    """A performance target.

    Args:
        text: Name of the compared quantity, for the table.
        measured: Function that computes the quantity from the report of a measurement.
        at_least: Smallest value that meets the target; None if only `at_most` limits it.
        at_most: Largest value that meets the target; None if only `at_least` limits it.
    """

    text: str
    measured: Callable[[CommReport], float]
    at_least: float | None = None
    at_most: float | None = None

    @property
    def allowed(self) -> str:
        """Target in words."""
        if self.at_most is not None:
            return f"at most {self.at_most:g}"
        return f"at least {self.at_least:g}"

    def holds(self, value: float) -> bool:
        """Return whether a value meets the target."""
        is_enough = self.at_least is None or value >= self.at_least
        return is_enough and (self.at_most is None or value <= self.at_most)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommCase:
    """A measurement, and the performance targets that it has to meet.

    Args:
        spec: Settings of the measurement.
        bars: Performance targets that are checked with the result of the measurement.
    """

    spec: CommSpec
    bars: tuple[CommBar, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """Report of one measurement, or the reason why the measurement failed.

    Args:
        case: Settings and performance targets of the measurement.
        report: Report of the measurement; None if the measurement failed.
        error: Reason why the measurement failed; empty if it succeeded.
    """

    case: CommCase
    report: CommReport | None
    error: str = ""


def cases(large: int = LARGE, small: int = SMALL, rounds: int = 5) -> tuple[CommCase, ...]:
    """Return all measurements of `slipstream bench comm --preset bars`, with their targets.

    Args:
        large: Message size in bytes that is so large that bandwidth limits the time.
        small: Message size in bytes that is so small that latency limits the time.
        rounds: Number of rounds of every measurement (default 5).
    """
    flows = ("250mbit", "250mbit", "250mbit", "62.5mbit")
    racks = LabSpec(ranks_per_host=2, racks=2, uplink="250mbit")
    in_labs = [
        _plain(large, small, rounds),
        CommCase(
            spec=_spec(LabSpec(flow_rate="250mbit"), large, rounds, "gloo"),
            bars=(_faster("time of gloo / ours", OURS, "gloo", large, 3.6),),
        ),
        CommCase(
            spec=_spec(LabSpec(flow_rates=flows), large, rounds),
            bars=(_link_share("bus bandwidth / sum of the flows", large, 0.90),),
        ),
        CommCase(
            spec=_spec(LabSpec(ranks_per_host=2), large, rounds, "gloo"),
            bars=(
                _faster("time of gloo / ours", OURS, "gloo", large, 1.12),
                _host_bytes(large),
            ),
        ),
        CommCase(
            spec=_spec(racks, large, rounds, "gloo", "ring"),
            bars=(
                _uplink_bytes(large),
                _faster("time of the flat ring / ours", OURS, RING, large, 1.0),
                _faster("time of gloo / ours", OURS, "gloo", large, 1.5),
            ),
        ),
    ]
    local = (_local(ranks, large, small, rounds) for ranks in (2, 4))
    return (*in_labs, _beside_cross_traffic(large, 20 * rounds), *local)


def run(chosen: Sequence[CommCase], on_note: OnNote) -> Iterator[Outcome]:
    """Yield the result of one measurement after another; a failed measurement does not end the run.

    All measurements together take minutes.

    Args:
        chosen: Measurements to run, with their targets.
        on_note: Function that receives a line of progress about each step.
    """
    for number, case in enumerate(chosen, 1):

        def tell(text: str, number: int = number, case: CommCase = case) -> None:
            on_note(f"{number} of {len(chosen)}, {title(case.spec)}: {text}")

        tell("started")
        try:
            yield Outcome(case=case, report=measure(case.spec, tell))
        except SlipstreamError as error:
            yield Outcome(case=case, report=None, error=str(error))


def bars_table(outcomes: Sequence[Outcome]) -> Table:
    """Return a table with a row for each target."""
    table = make_table(
        "Targets and measurements",
        words=("case", "quantity"),
        numbers=("target", "measured", ""),
        caption=environment_line(),
    )
    for outcome in outcomes:
        case_title = title(outcome.case.spec)
        for bar in outcome.case.bars:
            if outcome.report is None:
                table.add_row(case_title, bar.text, bar.allowed, "", "[red]failed[/red]")
            else:
                value = bar.measured(outcome.report)
                verdict = "[green]met[/green]" if bar.holds(value) else "[red]not met[/red]"
                table.add_row(case_title, bar.text, bar.allowed, f"{value:.3f}", verdict)
            case_title = ""
        table.add_section()
    return table


def bars_as_json(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return the targets, the measured values and all measured times, as JSON-compatible data."""
    return [_outcome_as_json(outcome) for outcome in outcomes]


def _outcome_as_json(outcome: Outcome) -> dict[str, Any]:
    report = outcome.report
    bars: list[dict[str, Any]] = []
    for bar in outcome.case.bars:
        value = None if report is None else bar.measured(report)
        bars.append(
            {
                "what": bar.text,
                "at_least": bar.at_least,
                "at_most": bar.at_most,
                "measured": value,
                "is_met": value is not None and bar.holds(value),
            }
        )
    measured = None if report is None else as_json(report)
    return {
        "case": title(outcome.case.spec),
        "bars": bars,
        "error": outcome.error,
        "report": measured,
    }


def _plain(large: int, small: int, rounds: int) -> CommCase:
    codecs = ("none", "fp16", "int8", "int8+feedback")
    spec = CommSpec(
        lab=LabSpec(),
        sizes=(small, large),
        codecs=codecs,
        peers=("gloo",),
        rounds=rounds,
        warmup=SETTLING_CALLS,
    )
    return CommCase(
        spec=spec,
        bars=(
            _link_share("bus bandwidth / rate of the link", large, 0.94),
            _faster("time of gloo / ours", OURS, "gloo", large, 0.99),
            _faster("time of gloo / ours, fp16", f"{OURS} fp16", "gloo", large, 1.85),
            _faster("time of gloo / ours, int8", f"{OURS} int8", "gloo", large, 3.6),
            _faster(
                "time of gloo / ours, int8 with error feedback",
                f"{OURS} int8+feedback",
                "gloo",
                large,
                3.4,
            ),
            _tenth(small),
        ),
    )


def _beside_cross_traffic(size: int, rounds: int) -> CommCase:
    spec = dataclasses.replace(_spec(LabSpec(), size, rounds), cross_traffic="500mbit")

    def unevenness(report: CommReport) -> float:
        samples = report.row(OURS, size).samples
        return samples.p99 / samples.median

    text = f"{format_bytes(size)}: 99th percentile of the time / median"
    return CommCase(spec=spec, bars=(CommBar(text=text, measured=unevenness, at_most=1.3),))


def _local(ranks: int, large: int, small: int, rounds: int) -> CommCase:
    return CommCase(
        spec=CommSpec(local=ranks, sizes=(small, large), peers=("gloo",), rounds=rounds),
        bars=(
            _faster("time of gloo / ours", OURS, "gloo", large, 3.0),
            _faster("time of copy and add / ours", OURS, "copy and add", large, 0.6),
            _tenth(small),
        ),
    )


def _spec(lab: LabSpec, size: int, rounds: int, *peers: str) -> CommSpec:
    return CommSpec(lab=lab, sizes=(size,), peers=peers, rounds=rounds, warmup=SETTLING_CALLS)


def _faster(text: str, ours: str, other: str, size: int, at_least: float) -> CommBar:
    return CommBar(
        text=f"{format_bytes(size)}: {text}",
        measured=lambda report: report.times_faster(ours, other, size),
        at_least=at_least,
    )


def _tenth(size: int) -> CommBar:
    return CommBar(
        text=f"{format_bytes(size)}: our time / gloo's",
        measured=lambda report: 1 / report.times_faster(OURS, "gloo", size),
        at_most=0.1,
    )


def _link_share(text: str, size: int, at_least: float) -> CommBar:
    return CommBar(
        text=f"{format_bytes(size)}: {text}",
        measured=lambda report: (report.row(OURS, size).limit_share or 0.0) * GOODPUT,
        at_least=at_least,
    )


def _host_bytes(size: int) -> CommBar:
    def excess(report: CommReport) -> float:
        row = report.row(OURS, size)
        return (row.host_bytes or 0) / (row.least_host_bytes or 1.0)

    return CommBar(text="payload over a link / the least", measured=excess, at_most=1.01)


def _uplink_bytes(size: int) -> CommBar:
    def excess(report: CommReport) -> float:
        row = report.row(OURS, size)
        return (row.uplink_bytes or 0) / (row.least_uplink_bytes or 1.0)

    return CommBar(text="payload over an uplink / the least", measured=excess, at_most=1.01)
