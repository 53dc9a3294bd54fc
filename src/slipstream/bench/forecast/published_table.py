"""Published speed-ups compared with forecasts, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from slipstream.bench.environment import environment
from slipstream.bench.forecast.published import MODEL, REACHED, RUNTIME, Scaling
from slipstream.bench.tables import make_table
from slipstream.forecast.simulate import parameters
from slipstream.forecast.simulate.step import SimulatedStep


def table(rows: Sequence[Scaling]) -> Table:
    """Return a table with a row for each published setting, and with notes on the assumptions.

    Args:
        rows: Published speed-ups with their simulated steps, at least one.
    """
    shown = make_table(
        "Published speed-ups, and forecasts for our engine",
        words=("setting",),
        numbers=(
            "GPUs", "published", "DDP", "within\nsteps", "equal\nranks", "fitted\nlinks",
            "needed\nspread",
        ),
        caption=_notes(rows),
    )  # fmt: skip
    shown.add_column("losses within steps")
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
        f" One GPU: {row.claim.batch / row.alone.seconds:.0f} images/s. The network is busy"
        f" for {row.busy(row.within):.0%} of a step."
        for index, row in enumerate(rows, 1)
    ]
    return "\n".join(
        [
            f"{MODEL}, simulated: samples per second of all GPUs divided by those of one. DDP:"
            " DDP's buckets. within steps: buckets of the best size, which the engine chooses;"
            f" links between hosts reach {REACHED:.0%} of their payload rate, as in the lab. fitted"
            " links: the same with the link rates that published software reaches.",
            f"The steps of a rank spread by {spread:.1%} of their mean, as fitted for {RUNTIME},"
            " and all ranks wait for the slowest. equal ranks: within steps, without this spread."
            " needed spread: spread that would explain the published speed-up.",
            *notes,
        ]
    )


def as_json(rows: Sequence[Scaling]) -> dict[str, Any]:
    """Return all forecasts as a JSON-compatible dictionary.

    Args:
        rows: Compared settings.
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
