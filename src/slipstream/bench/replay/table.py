"""Table and JSON of replays."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rich.table import Table

from slipstream.bench.comm.table import RELAY_NOTE
from slipstream.bench.devices import CPU, gloo_has_code
from slipstream.bench.models import model
from slipstream.bench.replay.job import ReplaySamples
from slipstream.bench.replay.measure import ReplayRow, ReplaySpec
from slipstream.bench.tables import make_table, not_run


def table(
    spec: ReplaySpec, rows: Sequence[ReplayRow], missing: Mapping[str, str] | None = None
) -> Table:
    """Return a table with a row for each model and compared library.

    Args:
        spec: Settings of the replay.
        rows: Results of the replay; without measured steps, only the shortest possible steps are
            shown.
        missing: Compared libraries that could not run, each with the reason (default: none).
    """
    is_measured = any(row.steps for row in rows)
    text = caption(spec) if is_measured else f"{caption(spec)} The optimizer takes no time."
    text += not_run(missing or {})
    if any(row.is_relayed for row in rows):
        text += f" {RELAY_NOTE}"
    words = ("model", "peer", "wire") if is_measured else ("model", "wire")
    times = ("step s", "mean", "slowest", "eff.") if is_measured else ()
    shown = make_table(
        title(spec),
        words=words,
        numbers=(*times, "limit\nwithin", "limit\nacross"),
        caption=text,
    )
    last = ""
    for row in rows:
        if last and row.model != last:
            shown.add_section()
        measured = _measured_cells(row) if is_measured else [row.wire]
        shown.add_row(row.model if row.model != last else "", *measured, *_limit_cells(row))
        last = row.model
    for peer in missing or {}:
        shown.add_row("", peer, "", "not run")
    return shown


def _measured_cells(row: ReplayRow) -> list[str]:
    if row.steps is None or row.efficiency is None:
        return [row.peer, row.wire, *("",) * 4]
    return [
        row.peer,
        "" if is_compute_only(row) else row.wire,
        f"{row.steps.median:.3f}",
        f"{row.steps.mean:.3f}",
        f"{max(row.steps.seconds):.3f}",
        f"{row.efficiency:.3f}",
    ]


def _limit_cells(row: ReplayRow) -> list[str]:
    if row.steps is not None and is_compute_only(row):
        return ["", ""]
    return [f"{row.limit.efficiency_within:.3f}", f"{row.limit.efficiency_across:.3f}"]


def is_compute_only(row: ReplayRow) -> bool:
    """Return whether a result is that of steps without communication."""
    return row.peer == "compute only"


def title(spec: ReplaySpec) -> str:
    """Return a description of the simulated hosts and of the set-up that they represent."""
    slowdown = spec.published().slowdown(spec.network())
    place = "" if spec.device == CPU else f" on {spec.device}"
    return (
        f"{spec.hosts} lab hosts at {spec.rate} for {spec.published()}: compute{place} and network"
        f" {slowdown:g} times slower"
    )


def caption(spec: ReplaySpec) -> str:
    """Return a caption that explains the columns and names the models whose times are estimated."""
    text = (
        "eff.: efficiency, compute-only step / step. Limits: highest efficiency in a simulation at"
        " 0.956 of the link, with overlap within the step and across the step boundary."
    )
    published = spec.published()
    estimated = [name for name in spec.models if name not in published.measured]
    if estimated:
        text += f" The compute time is estimated from FLOPs for {', '.join(estimated)}."
    if not gloo_has_code(spec.device):
        text += f" gloo gets copies in host memory, because it has no code for {spec.device}."
    if spec.sparse:
        text += " Embeddings send only the touched rows."
    return text


def as_json(
    spec: ReplaySpec, rows: Sequence[ReplayRow], missing: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the settings and all measured values as a JSON-compatible dictionary.

    Args:
        spec: Settings of the replay.
        rows: Results of the replay.
        missing: Compared libraries that could not run, each with the reason (default: none).
    """
    return {
        "spec": asdict(spec),
        "missing": dict(missing or {}),
        "is_relayed": any(row.is_relayed for row in rows),
        "published": str(spec.published()),
        "slowdown": spec.published().slowdown(spec.network()),
        "compute_seconds": {name: spec.compute_seconds(model(name)) for name in spec.models},
        "python": platform.python_version(),
        "torch": _version_of("torch"),
        "rows": [_row_as_json(row) for row in rows],
    }


def _row_as_json(row: ReplayRow) -> dict[str, Any]:
    return {
        "model": row.model,
        "peer": row.peer,
        "wire": row.wire,
        "median_seconds": row.steps.median if row.steps else None,
        "mean_seconds": row.steps.mean if row.steps else None,
        "seconds": (row.steps or ReplaySamples(seconds=())).seconds,
        "efficiency": row.efficiency,
        "limit_within": row.limit.efficiency_within,
        "limit_across": row.limit.efficiency_across,
    }


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
