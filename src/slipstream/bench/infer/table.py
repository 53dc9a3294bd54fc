"""Tables and JSON of the inference benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from slipstream.bench.environment import environment, environment_line
from slipstream.bench.infer.bars import (
    BEST_MEAN,
    FP32_MEAN,
    InferBar,
    best_bar,
    fp32_bar,
    geometric_mean,
)
from slipstream.bench.infer.contenders import CONTENDERS
from slipstream.bench.infer.job import InferTiming
from slipstream.bench.infer.measure import InferReport, ModelResult
from slipstream.bench.tables import make_table, yes_or_no
from slipstream.infer.machine import this_machine

HEADINGS = ("ms", "quartiles", "best", "dB", "MB", "made", "load", "of peak")


def tables(report: InferReport) -> list[Table]:
    """Return a table of contenders for each model, and a table of the performance targets."""
    return [*(_measured(report, result) for result in report.results), _bars(report)]


def caption(report: InferReport) -> str:
    """Return a caption that explains the columns and names the machine."""
    rates = ", ".join(f"{name} {peak / 1e9:,.0f}" for name, peak in report.peaks.items())
    return (
        "ms: median of single calls, and their quartiles. best: median of the best turn. dB:"
        " signal-to-noise ratio of the outputs against float32. MB: peak memory of the process."
        " made: seconds to quantise or compile. load: seconds to the first result. of peak: share"
        f" of the peak rate of these cores, in 1e9 operations per second: {rates}."
        f" {environment_line()}."
    )


def run_as_json(spec: Any, notes: Sequence[str]) -> dict[str, Any]:
    """Return the settings, the machine and the notes of a run.

    Args:
        spec: Dataclass with the settings of the run; it has a field `cache`.
        notes: Sentences that say which contenders were left out.
    """
    return {
        "spec": {**asdict(spec), "cache": str(spec.cache or "")},
        **environment(),
        "versions": this_machine().versions,
        "notes": notes,
    }


def as_json(report: InferReport) -> dict[str, Any]:
    """Return the settings and all measured values as a JSON-compatible dictionary."""
    return {
        **run_as_json(report.spec, report.notes),
        "failures": report.failures,
        "peak_operations_per_second": report.peaks,
        "models": [_model_as_json(report, result) for result in report.results],
        "geometric_means": {
            "fp32": geometric_mean([fp32_bar(result) for result in report.results]),
            "best": geometric_mean([best_bar(result) for result in report.results]),
        },
    }


def share_of_peak(report: InferReport, result: ModelResult, timing: InferTiming) -> float | None:
    """Return the rate of operations divided by the peak rate of the cores in the same precision.

    The result is None if the peak rate is unknown. The result is also None for the precision
    "int8-weights", because OpenVINO multiplies in int8 for transformers and in floating point for
    other models.
    """
    precision = CONTENDERS[timing.contender].precision
    if precision == "any":
        precision = timing.detail.split()[-1] if timing.detail else "fp32"
    peak = report.peaks.get("int8" if precision == "int8-dynamic" else precision)
    return None if peak is None else result.flops / timing.median / peak


def _measured(report: InferReport, result: ModelResult) -> Table:
    cores = cores_in_words(report.spec.threads)
    table = make_table(
        f"{result.model}: {result.flops / 1e9:.2f} GFLOP, batch 1 on {cores}",
        words=("contender",),
        numbers=HEADINGS,
        caption=_promise(report, result),
        is_dense=True,
    )
    fastest = min(timing.median for timing in result.timings)
    for timing in result.timings:
        style = "bold" if timing.median == fastest else ""
        table.add_row(*_cells(report, result, timing), style=style)
    return table


def _promise(report: InferReport, result: ModelResult) -> str | None:
    """Return a sentence about Slipstream's accuracy on additional inputs; None without them."""
    if result.unseen_db is None:
        return None
    kept = "kept" if result.keeps_promise else "BROKEN"
    return (
        f"Slipstream was asked for {result.asked_db:.1f} dB; {kept} on {report.spec.unseen} other"
        f" inputs: {result.unseen_db:.1f} dB."
    )


def _cells(report: InferReport, result: ModelResult, timing: InferTiming) -> list[str]:
    low, high = timing.quartiles
    share = share_of_peak(report, result, timing)
    title = CONTENDERS[timing.contender].title
    return [
        f"{title}: {timing.detail}" if timing.detail else title,
        f"{timing.median * 1e3:.3g}",
        f"{low * 1e3:.3g}-{high * 1e3:.3g}",
        f"{timing.best * 1e3:.3g}",
        f"{timing.snr_db:.1f}",
        f"{timing.peak_bytes / 1e6:.0f}",
        f"{timing.prepare_seconds:.1f}" if timing.prepare_seconds else "",
        f"{timing.load_seconds:.2f}",
        "" if share is None else f"{share:.0%}",
    ]


def _bars(report: InferReport) -> Table:
    table = make_table(
        "best peer's time / ours",
        words=("model", "best peer"),
        numbers=("ms", "ours", "ratio", "best", "target", "dB", "met"),
        caption=(
            "best: ratio of the best turns. dB: signal-to-noise ratios of ours and of that peer;"
            " beside a peer in float32, ours needs 60."
        ),
        is_dense=True,
    )
    for title, bar_of, target in (
        ("float32", fp32_bar, FP32_MEAN),
        ("any precision", best_bar, BEST_MEAN),
    ):
        bars = [bar_of(result) for result in report.results]
        _add_bars(table, title, bars, target)
    return table


def _add_bars(table: Table, title: str, bars: Sequence[InferBar | None], target: float) -> None:
    table.add_row(title, style="bold")
    for bar in filter(None, bars):
        table.add_row(
            bar.model,
            bar.peer.contender,
            f"{bar.peer.median * 1e3:.3g}",
            f"{bar.ours.median * 1e3:.3g}",
            f"{bar.ratio:#.3g}",
            f"{bar.quiet_ratio:#.3g}",
            f"{bar.at_least:.2f}",
            f"{bar.ours.snr_db:.1f}, {bar.peer.snr_db:.1f}",
            yes_or_no(bar.holds),
        )
    mean = geometric_mean(bars)
    quiet = geometric_mean(bars, quiet=True)
    if mean is not None and quiet is not None:
        cells = (f"{mean:#.3g}", f"{quiet:#.3g}", f"{target:.2f}", "", yes_or_no(mean >= target))
        table.add_row("geometric mean", "", "", "", *cells)
    table.add_section()


def cores_in_words(threads: int) -> str:
    """Return "one core" or "N cores"."""
    return "one core" if threads == 1 else f"{threads} cores"


def _model_as_json(report: InferReport, result: ModelResult) -> dict[str, Any]:
    return {
        "model": result.model,
        "flops": result.flops,
        "bytes_moved": result.bytes_moved,
        "asked_db": result.asked_db,
        "unseen_db": result.unseen_db,
        "contenders": [
            {
                **asdict(timing),
                "title": CONTENDERS[timing.contender].title,
                "median_seconds": timing.median,
                "best_turn_seconds": timing.best,
                "quartile_seconds": timing.quartiles,
                "share_of_peak": share_of_peak(report, result, timing),
            }
            for timing in result.timings
        ],
        "bars": {
            name: None if bar is None else _bar_as_json(bar)
            for name, bar in (("fp32", fp32_bar(result)), ("best", best_bar(result)))
        },
    }


def _bar_as_json(bar: InferBar) -> dict[str, Any]:
    return {
        "peer": bar.peer.contender,
        "ratio": bar.ratio,
        "ratio_of_best_turns": bar.quiet_ratio,
        "at_least": bar.at_least,
        "is_accurate": bar.is_accurate,
        "holds": bar.holds,
    }
