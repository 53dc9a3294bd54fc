"""Tables and JSON of the image benchmark."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table

from slipstream.bench.environment import environment_line
from slipstream.bench.images.measure import CORES, ImageRow, ImagesReport, Task
from slipstream.bench.infer.table import cores_in_words, run_as_json
from slipstream.bench.tables import make_table, yes_or_no


def tables(report: ImagesReport) -> list[Table]:
    """Return a table of contenders for each model and task, and a table of the targets."""
    measured = [
        _measured(model, task, report.of(model, task))
        for model in report.spec.models
        for task in report.spec.tasks
    ]
    return [*measured, _bars(report)]


def caption(report: ImagesReport) -> str:
    """Return a caption that explains the columns and names the machine."""
    return (
        "From the bytes of a JPEG file (500x375, 57 kB) to a label; peers decode with Pillow and"
        " NumPy. prefetch: a thread decodes ahead, and the engine has all cores or 1 thread. queue:"
        " asynchronous requests of OpenVINO. ms: median of single images, or of the means of"
        f" {report.spec.rounds} streams. range: quartiles, or the least and the greatest mean."
        " CPU: processor time, spinning included. labels: share that agrees with the network in"
        f" float32. load: seconds to the first label. {environment_line()}."
    )


def as_json(report: ImagesReport) -> dict[str, Any]:
    """Return the settings and all measured values as a JSON-compatible dictionary."""
    return {
        **run_as_json(report.spec, report.notes),
        "rows": [
            {**asdict(row), "title": row.pipeline.title, "median_seconds": row.median}
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
    table = make_table(
        f"{model}: {task} on {cores_in_words(CORES[task])}",
        words=("contender",),
        numbers=("ms", "range", "CPU ms", "images/s", "labels", "load"),
    )
    fastest = min(row.median for row in rows)
    for row in rows:
        low, high = _ends(row)
        table.add_row(
            f"{row.pipeline.title}: {row.detail}" if row.detail else row.pipeline.title,
            f"{row.median * 1e3:.3g}",
            f"{low * 1e3:.3g}-{high * 1e3:.3g}",
            f"{row.cpu_seconds * 1e3:.3g}",
            f"{1 / row.median:.1f}",
            f"{row.agreement:.0%}",
            f"{row.load_seconds:.2f}",
            style="bold" if row.median == fastest else "",
        )
    return table


def _ends(row: ImageRow) -> tuple[float, float]:
    """Return the quartiles of the seconds per image; for a stream, the fastest and slowest turn."""
    ordered = sorted(row.seconds)
    if row.pipeline.task == "stream":
        return ordered[0], ordered[-1]
    return ordered[len(ordered) // 4], ordered[len(ordered) * 3 // 4]


def _bars(report: ImagesReport) -> Table:
    table = make_table(
        "peer's time / ours: the best plain pipeline, and the best of the others",
        words=("model", "task", "peer"),
        numbers=("peer ms", "ours", "ratio", "target", "met"),
    )
    for bar in report.bars():
        table.add_row(
            bar.model,
            bar.task,
            bar.peer.pipeline.title,
            f"{bar.peer.median * 1e3:.3g}",
            f"{bar.ours.median * 1e3:.3g}",
            f"{bar.ratio:.2f}",
            "" if bar.at_least is None else f"{bar.at_least:.2f}",
            "" if bar.at_least is None else yes_or_no(bar.ratio >= bar.at_least),
        )
    return table
