"""Published speed-ups beside forecasts, as people and as programs read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table

from slipstream.bench.forecast.published import MODEL, REACHED, RUNTIME, Scaling
from slipstream.bench.result import environment
from slipstream.forecast.simulate import parameters
from slipstream.forecast.simulate.step import SimulatedStep


def table(rows: Sequence[Scaling]) -> Table:
    """Return a row for each published setting, with notes on what is assumed.

    Args:
        rows: Rows, at least one.
    """
    shown = Table(
        box=box.SIMPLE_HEAD,
        title="Published speed-ups, and those forecast for our engine's plans",
        caption=_notes(rows),
        title_justify="left",
        caption_justify="left",
    )
    shown.add_column("setting", no_wrap=True)
    for heading in (
        "GPUs", "published", "DDP", "within steps", "ranks even", "links fitted",
        "spread as published",
    ):  # fmt: skip
        shown.add_column(heading, justify="right")
    shown.add_column("lost within steps to")
    for index, row in enumerate(rows, 1):
        claim = row.claim
        codec = "fp32" if claim.codec == "none" else claim.codec
        shown.add_row(
            f"{claim.name}, {codec} ({index})",
            str(claim.ranks),
            _both(claim.speedup, claim.ranks),
            f"{row.speedup(row.ddp):.0f}",
            _both(row.speedup(row.within), claim.ranks),
            *(f"{row.speedup(step):.0f}" for step in (row.even, row.fitted)),
            f"{row.needed_spread():.1%}",
            row.limit(),
        )
    return shown


def _both(speedup: float, ranks: int) -> str:
    return f"{speedup:.0f}\n{speedup / ranks:.1%}"


def _notes(rows: Sequence[Scaling]) -> str:
    spread = parameters.load().runtime(RUNTIME).spread
    notes = [
        f"({index}) published: {row.claim.published}. Assumed: {row.claim.assumed}."
        f" One GPU: {row.claim.batch / row.alone.seconds:.0f} pictures a second; the network is"
        f" busy for {row.busy(row.within):.0%} of a step."
        for index, row in enumerate(rows, 1)
    ]
    return "\n".join(
        [
            f"{MODEL}, simulated: samples a second of all over those of one. DDP: its buckets;"
            " within steps: buckets of the best size, which the engine finds. Links between hosts"
            f" carry {REACHED:.0%} of their payload, as in the lab; links fitted: within steps,"
            " with what published software reaches of them.",
            f"A rank's steps spread by {spread:.1%} of their mean, as fitted for {RUNTIME}, and all"
            " wait for the slowest; ranks even: within steps, without that. Spread as published:"
            " with which a step would be as long.",
            *notes,
        ]
    )


def as_json(rows: Sequence[Scaling]) -> dict[str, Any]:
    """Return everything that was forecast.

    Args:
        rows: Rows, one per setting.
    """
    return {**environment(), "model": MODEL, "rows": [_row(row) for row in rows]}


def _row(row: Scaling) -> dict[str, Any]:
    claim = row.claim

    def step(simulated: SimulatedStep) -> dict[str, float]:
        return {
            "seconds": simulated.seconds,
            "speedup": row.speedup(simulated),
            "efficiency": row.efficiency(simulated),
            "waited": row.waited(simulated),
            "exposed": row.exposed(simulated),
            "network_busy": row.busy(simulated),
        }

    return {
        "name": claim.name,
        "ranks": claim.ranks,
        "codec": claim.codec,
        "batch": claim.batch,
        "published_speedup": claim.speedup,
        "published": claim.published,
        "assumed": claim.assumed,
        "needed_spread": row.needed_spread(),
        "alone_seconds": row.alone.seconds,
        "ddp": step(row.ddp),
        "within": step(row.within),
        "even": step(row.even),
        "fitted": step(row.fitted),
    }
