"""What a compilation tried, what it chose and why: tables for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from pydantic import BaseModel, ConfigDict, Field
from rich.table import Table
from rich.text import Text

from slipstream.infer.accuracy.promise import Accuracy
from slipstream.infer.engines.protocol import Precision
from slipstream.infer.machine import Machine


class State(str, Enum):
    """What became of a candidate."""

    CHOSEN = "chosen"
    MEASURED = "measured"  # right, and slower or larger
    COMPARED = "compared"  # measured, and not to be chosen: a package cannot hold it
    REJECTED = "rejected"  # its results are too far from the reference's
    FAILED = "failed"  # the engine cannot do it
    UNTRIED = "untried"


class Candidate(BaseModel):
    """One way to run the model.

    Args:
        engine: its name.
        precision: None where the engine as a whole was not tried.
        rewrites: it ran the rewritten graph, not the one imported.
        streams: calls at a time.
        method: for int8, how ranges were found.
        kept: of a mixture: values that could be bytes and are left to `rest`.
        state: what became of it.
        reason: why it was not measured, rejected or failed; "" otherwise.
        snr_db: signal to noise of its results beside the reference's, in dB, 200 if equal.
        top1_loss: percentage points of right answers lost, where there are labels.
        top1: percent of right answers, where there are labels.
        agreement: percent of the answers that are the model's, where an output is of classes.
        samples: number of inputs that judged it.
        median_ms, low_ms, high_ms: of one input, and the quartiles; with several streams, the time
            of a round divided by them.
        rounds: how often it was timed.
        weights_bytes: of its constants.
        prepare_seconds: to make it ready.
    """

    model_config = ConfigDict(frozen=True)

    engine: str
    precision: Precision | None = None
    rewrites: bool = True
    streams: int = 1
    method: str | None = None
    kept: int = 0
    rest: Precision = "fp32"
    state: State
    reason: str = ""
    snr_db: float | None = None
    top1_loss: float | None = None
    top1: float | None = None
    agreement: float | None = None
    samples: int = 0
    median_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    rounds: int = 0
    weights_bytes: int | None = None
    prepare_seconds: float | None = None

    @property
    def title(self) -> str:
        """Its name for people."""
        precision = f"{self.precision}+{self.rest}" if self.kept else self.precision
        words = [self.engine, *([precision] if precision else [])]
        if self.streams > 1:
            words.append(f"x{self.streams}")
        return " ".join(words)


class Segment(BaseModel):
    """A part of the model by itself.

    Args:
        end: the value with which it ends; "" for the last part.
        ms: median milliseconds of each candidate that can run it.
    """

    model_config = ConfigDict(frozen=True)

    end: str
    ms: dict[str, float]


class Rewritten(BaseModel):
    """How often a rewrite found something, and what that saves.

    Args:
        name: of the rewrite.
        matches: that it rewrote.
        nodes_saved: of the graph; negative where its result is longer.
        gained_ms: that a call of the chosen candidate takes more without it; None where that was
            not measured.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    matches: int
    nodes_saved: int
    gained_ms: float | None = None


class Report(BaseModel):
    """A compilation.

    Args:
        origin: where the model came from.
        machine: on which it was measured.
        threads: that every candidate had.
        target: latency, throughput or memory.
        allowed: the accuracy budget in words.
        accuracy: promise of the chosen candidate.
        data: what results were compared on, in words.
        notes: what was assumed or left out, a sentence each.
        nodes_before, nodes_after: of the graph as imported, and as rewritten.
        rewrites: those that found something.
        candidates: all that were considered, the chosen one first, then by time.
        segments: times of the model's parts; none where it cannot be cut, or one engine is left.
        choice: why it was chosen, in a sentence.
        seconds: duration of the import and of the search.
        search_seconds: duration of the search, which `--time` limits; None in older reports.
    """

    model_config = ConfigDict(frozen=True)

    origin: str
    machine: Machine
    threads: int
    target: str
    allowed: str
    accuracy: Accuracy | None = None
    data: str
    notes: tuple[str, ...] = ()
    nodes_before: int
    nodes_after: int
    rewrites: tuple[Rewritten, ...] = ()
    candidates: tuple[Candidate, ...]
    segments: tuple[Segment, ...] = ()
    choice: str
    seconds: float = Field(ge=0)
    search_seconds: float | None = None

    @property
    def chosen(self) -> Candidate:
        """The candidate that was chosen."""
        return next(item for item in self.candidates if item.state is State.CHOSEN)


_STYLES = {
    State.CHOSEN: "bold green",
    State.COMPARED: "dim",
    State.REJECTED: "yellow",
    State.FAILED: "dim",
    State.UNTRIED: "dim",
}


def candidates_table(report: Report) -> Table:
    """Every candidate in a row; engines that were not tried at all are in `summary`."""
    title = f"{report.origin}: {report.threads} thread{'s' if report.threads > 1 else ''}"
    table = Table(title=f"{title} of {report.machine.processor}", title_justify="left")
    for name in ("candidate", "graph"):
        table.add_column(name, no_wrap=True)
    for name in ("ms", "quartiles", "SNR dB", "weights"):
        table.add_column(name, justify="right", no_wrap=True)
    has_labels = any(item.top1 is not None for item in report.candidates)
    has_answers = any(item.agreement is not None for item in report.candidates)
    if has_labels:
        table.add_column("top-1", justify="right", no_wrap=True)
    elif has_answers:
        table.add_column("same answer", justify="right", no_wrap=True)
    table.add_column("outcome", overflow="fold")
    for item in (each for each in report.candidates if each.precision is not None):
        table.add_row(*_cells(item, has_labels, has_answers), style=_STYLES.get(item.state))
    return table


def summary(report: Report) -> Text:
    """The choice, what it rests on, and the rewrites."""
    lines = [Text(report.choice, style="bold")]
    if report.accuracy is not None:
        lines.append(Text(f"Accuracy: {report.accuracy.words}."))
    lines.append(Text(f"Measured on {report.data}; allowed: {report.allowed}."))
    lines.extend(Text(f"Note: {note}.") for note in report.notes)
    if report.segments:
        lines.append(Text(_segments_line(report.segments)))
    untried = (item for item in report.candidates if item.precision is None)
    lines.extend(Text(f"Not tried: {item.engine}: {item.reason}.") for item in untried)
    lines.append(Text(_rewrites_line(report.rewrites, report.nodes_before, report.nodes_after)))
    return Text("\n").join(lines)


def _cells(item: Candidate, has_labels: bool, has_answers: bool) -> list[str]:
    quartiles = "" if item.low_ms is None else f"{item.low_ms:.3g}-{item.high_ms:.3g}"
    answers: list[str] = []
    if has_labels:
        answers = ["" if item.top1 is None else f"{item.top1:.2f} ({-(item.top1_loss or 0):+.2f})"]
    elif has_answers:
        answers = [_number(item.agreement, ".1f")]
    words = [item.state.value, *([item.reason] if item.reason else [])]
    method = f"; ranges by {item.method}" if item.method else ""
    if item.kept:
        method += f"; {item.kept} values in {item.rest}"
    return [
        item.title,
        "rewritten" if item.rewrites else "as imported",
        _number(item.median_ms, ".3f"),
        quartiles,
        _number(item.snr_db, ".1f"),
        "" if item.weights_bytes is None else f"{item.weights_bytes / 1e6:.1f} MB",
        *answers,
        ": ".join(words) + method,
    ]


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _segments_line(segments: Sequence[Segment]) -> str:
    """Who is fastest in how many parts, and what the best of each part come to."""
    fastest = [min(item.ms, key=lambda title: item.ms[title]) for item in segments]
    wins = ", ".join(f"{name} in {fastest.count(name)}" for name in dict.fromkeys(fastest))
    best = sum(min(item.ms.values()) for item in segments)
    return f"In {len(segments)} parts, fastest is {wins}; the best of each take {best:.3f} ms."


def _rewrites_line(rewrites: Sequence[Rewritten], before: int, after: int) -> str:
    if not rewrites:
        return f"No rewrite found anything in the graph of {before} nodes."
    found = ", ".join(f"{item.name} {item.matches}{_gain(item)}" for item in rewrites)
    return f"Rewrites made {after} nodes of {before}: {found}."


def _gain(item: Rewritten) -> str:
    return "" if item.gained_ms is None else f" ({item.gained_ms:+.3f} ms without it)"
