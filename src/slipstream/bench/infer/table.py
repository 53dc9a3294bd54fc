"""Inference benchmarks as people and as programs read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table

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
from slipstream.bench.result import environment, environment_line
from slipstream.infer.machine import this_machine

HEADINGS = ("ms", "quartiles", "best", "dB", "MB", "made", "load", "of peak")


def tables(report: InferReport) -> list[Table]:
    """Return a table of contenders for each model, and one of the targets."""
    return [*(_measured(report, result) for result in report.results), _bars(report)]


def caption(report: InferReport) -> str:
    """Return the meaning of the columns, and the machine."""
    rates = ", ".join(f"{name} {peak / 1e9:,.0f}" for name, peak in report.peaks.items())
    return (
        "ms: median of single calls, and quartiles; best: median of the best turn. dB: signal to"
        " noise of outputs beside float32. MB: most memory of the process. made: seconds to"
        " quantise or compile; load: to the first"
        f" result. of peak: of these cores' own, in 1e9 operations per second {rates}."
        f" {environment_line()}."
    )


def as_json(report: InferReport) -> dict[str, Any]:
    """Return everything that was measured, and how."""
    return {
        "spec": {**asdict(report.spec), "cache": str(report.spec.cache or "")},
        **environment(),
        "versions": this_machine().versions,
        "peak_operations_per_second": report.peaks,
        "notes": report.notes,
        "models": [_model_as_json(report, result) for result in report.results],
        "geometric_means": {
            "fp32": geometric_mean([fp32_bar(each) for each in report.results]),
            "best": geometric_mean([best_bar(each) for each in report.results]),
        },
    }


def share_of_peak(report: InferReport, result: ModelResult, timed: InferTiming) -> float | None:
    """Return the operations per second, divided by the most that the cores do in this precision.

    None where the peak is not known, and for int8 with weights only: OpenVINO multiplies them as
    bytes in transformers and as floats elsewhere.
    """
    precision = CONTENDERS[timed.contender].precision
    if precision == "any":
        precision = timed.detail.split()[-1] if timed.detail else "fp32"
    peak = report.peaks.get("int8" if precision == "int8-dynamic" else precision)
    return None if peak is None else result.flops / timed.median / peak


def _measured(report: InferReport, result: ModelResult) -> Table:
    shown = Table(
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        title=(
            f"{result.model}: {result.flops / 1e9:.2f} GFLOP, batch 1 on"
            f" {cores_in_words(report.spec.threads)}"
        ),
        title_justify="left",
        caption=_promise(report, result),
        caption_justify="left",
    )
    shown.add_column("by", no_wrap=True)
    for heading in HEADINGS:
        shown.add_column(heading, justify="right", no_wrap=True)
    fastest = min(each.median for each in result.timed)
    for timed in result.timed:
        style = "bold" if timed.median == fastest else ""
        shown.add_row(*_cells(report, result, timed), style=style)
    return shown


def _promise(report: InferReport, result: ModelResult) -> str | None:
    """Return whether ours is accurate enough on unseen inputs, in words."""
    if result.unseen_db is None:
        return None
    kept = "kept" if result.keeps_promise else "BROKEN"
    return (
        f"Asked of Slipstream: {result.asked_db:.1f} dB; {kept} on {report.spec.unseen} other"
        f" inputs: {result.unseen_db:.1f} dB."
    )


def _cells(report: InferReport, result: ModelResult, timed: InferTiming) -> list[str]:
    low, high = timed.quartiles
    share = share_of_peak(report, result, timed)
    title = CONTENDERS[timed.contender].title
    return [
        f"{title}: {timed.detail}" if timed.detail else title,
        f"{timed.median * 1e3:.3g}",
        f"{low * 1e3:.3g}-{high * 1e3:.3g}",
        f"{timed.best * 1e3:.3g}",
        f"{timed.snr_db:.1f}",
        f"{timed.peak_bytes / 1e6:.0f}",
        f"{timed.prepare_seconds:.1f}" if timed.prepare_seconds else "",
        f"{timed.load_seconds:.2f}",
        "" if share is None else f"{share:.0%}",
    ]


def _bars(report: InferReport) -> Table:
    shown = Table(
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        title="best peer's time / ours",
        caption=(
            "best: the ratio of the best turns. dB: signal to noise of ours and of that peer; of a"
            " peer in float32, 60 is asked."
        ),
        title_justify="left",
        caption_justify="left",
    )
    for heading in ("model", "best peer"):
        shown.add_column(heading, no_wrap=True)
    for heading in ("ms", "ours", "ratio", "best", "wanted", "dB", "holds"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for title, bar_of, wanted in (
        ("float32", fp32_bar, FP32_MEAN),
        ("any precision", best_bar, BEST_MEAN),
    ):
        bars = [bar_of(result) for result in report.results]
        _add_bars(shown, title, bars, wanted)
    return shown


def _add_bars(shown: Table, title: str, bars: Sequence[InferBar | None], wanted: float) -> None:
    shown.add_row(title, style="bold")
    for bar in (each for each in bars if each is not None):
        shown.add_row(
            bar.model,
            bar.peer.contender,
            f"{bar.peer.median * 1e3:.3g}",
            f"{bar.ours.median * 1e3:.3g}",
            f"{bar.ratio:#.3g}",
            f"{bar.quiet_ratio:#.3g}",
            f"{bar.at_least:.2f}",
            f"{bar.ours.snr_db:.1f}, {bar.peer.snr_db:.1f}",
            _yes_or_no(bar.holds),
        )
    mean = geometric_mean(bars)
    quiet = geometric_mean(bars, quiet=True)
    if mean is not None and quiet is not None:
        cells = (f"{mean:#.3g}", f"{quiet:#.3g}", f"{wanted:.2f}", "", _yes_or_no(mean >= wanted))
        shown.add_row("geometric mean", "", "", "", *cells)
    shown.add_section()


def _yes_or_no(holds: bool) -> str:
    return "yes" if holds else "no"


def cores_in_words(threads: int) -> str:
    """Return "one core", or their number."""
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
                **asdict(timed),
                "title": CONTENDERS[timed.contender].title,
                "median_seconds": timed.median,
                "best_turn_seconds": timed.best,
                "quartile_seconds": timed.quartiles,
                "share_of_peak": share_of_peak(report, result, timed),
            }
            for timed in result.timed
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
