"""The HTML page that compares forecasts with published measurements."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from slipstream.forecast.report import judged, judged_charts
from slipstream.forecast.report.page import Cell, Column, Figure, Section, Table, page
from slipstream.forecast.search.intervals import Intervals
from slipstream.forecast.validate.case import Unread
from slipstream.forecast.validate.display import KEYS, notes, percent
from slipstream.forecast.validate.score import Score, ValidationReport

_UNSEEN = {
    "source": "without its source", "model": "without its model in its source",
    "none": "on all rows",
}  # fmt: skip
_LINES = 12


def validation_page(report: ValidationReport, intervals: Intervals, name: str) -> str:
    """Return a comparison of forecasts with measurements as a self-contained HTML page.

    The call blocks for a second or two.

    Args:
        report: Measurements from a table, each with its forecast.
        intervals: Factors from a forecast to its prediction interval; the page says how many
            measurements lie in the intervals.
        name: Name of the table, for the title.
    """
    count, missed = len(report.judged), len(report.unread)
    summary = (
        f"{count:,} of {count + missed:,} rows were read. Each row is forecast with parameters that"
        f" were fitted {_UNSEEN[report.leave]}."
    )
    sections = [*_charts(report), _errors(report, intervals), _worst(report)]
    if report.unread:
        sections.append(_unread(report))
    return page(f"Forecasts compared with {name}", summary, sections)


def _charts(report: ValidationReport) -> list[Section]:
    sources = judged.sources(report)
    sections: list[Section] = []
    if points := judged.points(report):
        caption = (
            "Forecast and measured seconds of a step on logarithmic scales. A forecast on the line"
            " is exact; in the dark band its error is at most 10 %, in the light band at most 20 %."
        )
        spec = judged_charts.scatter(points, judged.bands(points), sources)
        figure = Figure("seconds-chart", caption, spec)
        sections.append(Section(name="seconds", title="Time of a step", figures=[figure]))
    if shares := judged.efficiencies(report):
        caption = (
            "Forecast and measured scaling efficiency, of rows whose single device was measured"
            " too. In the band the error is at most 10 percentage points."
        )
        spec = judged_charts.efficiency(shares, sources)
        figure = Figure("efficiency-chart", caption, spec)
        sections.append(Section(name="efficiency", title="Scaling efficiency", figures=[figure]))
    return sections


def _errors(report: ValidationReport, intervals: Intervals) -> Section:
    tables = [_scores("source", report.sources(), folded=False)]
    tables += [_scores(key, report.by(of)) for key, of in KEYS.items() if key != "source"]
    lines = [line for line in notes(report, intervals) if not line.startswith(" ")]
    sentences = [line for line in lines if not line.endswith(":")]
    return Section(name="errors", title="Errors", notes=sentences, tables=tables)


def _scores(key: str, scores: Mapping[str, Score], *, folded: bool = True) -> Table:
    names = ("rows", "read", "mean error", "median", "9 in 10 below", "bias")
    lines = [
        (
            Cell(name.strip()), Cell(f"{score.rows:,}"), Cell(f"{score.read:,}"),
            *(Cell(percent(share)) for share in score.shares),
        )
        for name, score in scores.items()
    ]  # fmt: skip
    columns = (Column(key), *(Column(name, numeric=True) for name in names))
    return Table(f"Errors by {key}", columns, lines, folded=folded)


def _worst(report: ValidationReport) -> Section:
    names = ("forecast", "measured", "error")
    columns = (
        Column("model"), Column("on"), Column("framework"),
        *(Column(name, numeric=True) for name in names),
        Column("assumed"), Column("source"),
    )  # fmt: skip
    lines = [
        (
            Cell(judged.case.model), Cell(f"{judged.case.devices} x {judged.case.device}"),
            Cell(judged.case.framework), Cell(f"{judged.forecast:.4g}"),
            Cell(f"{judged.case.measured:.4g}"), Cell(percent(judged.error)),
            Cell(", ".join(judged.case.assumed) or "-"),
            Cell(judged.case.source, f"line {judged.case.line}"),
        )
        for judged in report.worst()
    ]  # fmt: skip
    table = Table("Rows with the largest errors, and the values that were assumed", columns, lines)
    return Section(name="worst", title="Worst rows", tables=[table])


def _unread(report: ValidationReport) -> Section:
    groups: dict[str, list[Unread]] = defaultdict(list)
    for row in report.unread:
        groups[row.reason].append(row)
    counts = Counter({reason: len(rows) for reason, rows in groups.items()})
    lines = [
        (Cell(reason), Cell(str(count)), Cell(_models(groups[reason])), Cell(_at(groups[reason])))
        for reason, count in counts.most_common()
    ]
    columns = (Column("reason"), Column("rows", numeric=True), Column("models"), Column("lines"))
    table = Table(f"{len(report.unread):,} rows that could not be read", columns, lines)
    return Section(name="unread", title="Rows not read", tables=[table])


def _models(rows: list[Unread]) -> str:
    return _some(list(dict.fromkeys(row.model for row in rows)))


def _at(rows: list[Unread]) -> str:
    return _some([str(row.line) for row in rows])


def _some(words: list[str]) -> str:
    more = len(words) - _LINES
    return ", ".join(words[:_LINES]) + (f" and {more} more" if more > 0 else "")
