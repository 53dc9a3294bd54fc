"""Benchmarks of pictures as people and as programs read them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table

from slipstream.bench.images.measure import CORES, ImageRow, PicturesReport, Task
from slipstream.bench.infer.table import cores_in_words
from slipstream.bench.result import environment, environment_line
from slipstream.infer.machine import this_machine


def tables(report: PicturesReport) -> list[Table]:
    """Return a table of contenders for each model and task, and one of the targets."""
    found: list[Table] = []
    for model in report.spec.models:
        for task in report.spec.tasks:
            rows = [row for row in report.rows if (row.model, row.how.task) == (model, task)]
            found.append(_measured(model, task, rows))
    return [*found, _bars(report)]


def caption(report: PicturesReport) -> str:
    """Return the meaning of the columns, and the machine."""
    return (
        "From the bytes of a JPEG file (500x375, 57 kB) to a label, peers by Pillow and NumPy;"
        " prefetch: a thread decodes ahead, and the engine has all cores or 1 thread; queue:"
        " OpenVINO's asynchronous requests. ms: median of single pictures, or of"
        f" {report.spec.rounds} streams' means, and quartiles or the least and the greatest."
        " CPU: of processors, waiting in loops included. labels: share that are those of the"
        f" network in float32. load: seconds to the first label. {environment_line()}."
    )


def as_json(report: PicturesReport) -> dict[str, Any]:
    """Return everything that was measured, and how."""
    return {
        "spec": {**asdict(report.spec), "cache": str(report.spec.cache or "")},
        **environment(),
        "versions": this_machine().versions,
        "notes": report.notes,
        "rows": [
            {**asdict(row), "title": row.how.title, "median_seconds": row.median}
            for row in report.rows
        ],
        "bars": [
            {
                "model": bar.model,
                "task": bar.task,
                "peer": bar.peer.contender,
                "ratio": bar.ratio,
                "at_least": bar.at_least,
            }
            for bar in report.bars()
        ],
    }


def _measured(model: str, task: Task, rows: list[ImageRow]) -> Table:
    cores = cores_in_words(CORES[task])
    shown = Table(box=box.SIMPLE_HEAD, title=f"{model}: {task} on {cores}", title_justify="left")
    shown.add_column("by", no_wrap=True)
    for heading in ("ms", "from-to", "CPU ms", "pictures/s", "labels", "load"):
        shown.add_column(heading, justify="right", no_wrap=True)
    fastest = min(row.median for row in rows)
    for row in rows:
        low, high = _ends(row)
        shown.add_row(
            f"{row.how.title}: {row.detail}" if row.detail else row.how.title,
            f"{row.median * 1e3:.3g}",
            f"{low * 1e3:.3g}-{high * 1e3:.3g}",
            f"{row.cpu_seconds * 1e3:.3g}",
            f"{1 / row.median:.1f}",
            f"{row.agreement:.0%}",
            f"{row.load_seconds:.2f}",
            style="bold" if row.median == fastest else "",
        )
    return shown


def _ends(row: ImageRow) -> tuple[float, float]:
    """Return the quartiles of single images, or the range of streams."""
    ordered = sorted(row.seconds)
    if row.how.task == "stream":
        return ordered[0], ordered[-1]
    return ordered[len(ordered) // 4], ordered[len(ordered) * 3 // 4]


def _bars(report: PicturesReport) -> Table:
    shown = Table(
        box=box.SIMPLE_HEAD,
        title="peer's time / ours: the best plain pipeline, and the best of the others",
        title_justify="left",
    )
    for heading in ("model", "task", "peer"):
        shown.add_column(heading, no_wrap=True)
    for heading in ("its ms", "ours", "ratio", "wanted", "holds"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for bar in report.bars():
        holds = "" if bar.at_least is None else "yes" if bar.ratio >= bar.at_least else "no"
        shown.add_row(
            bar.model,
            bar.task,
            bar.peer.how.title,
            f"{bar.peer.median * 1e3:.3g}",
            f"{bar.ours.median * 1e3:.3g}",
            f"{bar.ratio:.2f}",
            "" if bar.at_least is None else f"{bar.at_least:.2f}",
            holds,
        )
    return shown
