"""The report of a compilation: its candidates, the choice and the reasons, as tables and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from pydantic import BaseModel, ConfigDict, Field
from rich.table import Table
from rich.text import Text

from slipstream.infer.accuracy.promise import Accuracy
from slipstream.infer.engines.protocol import Precision
from slipstream.infer.machine import Machine
from slipstream.units import format_bytes


class State(str, Enum):
    """Outcome of a candidate."""

    CHOSEN = "chosen"
    MEASURED = "measured"  # accurate enough, but slower or larger than the chosen one
    COMPARED = "compared"  # measured for comparison only: a package cannot contain it
    REJECTED = "rejected"  # its results differ too much from the reference's
    FAILED = "failed"  # the engine cannot run the model in this form
    UNTRIED = "untried"  # the engine is not available, or no time was left


class Candidate(BaseModel):
    """A candidate of the search: one way to run the model, and its measurements.

    Args:
        engine: Name of the engine.
        precision: Precision of convolutions, matrix products and attention; None if the engine was
            not tried.
        rewrites: Whether the candidate runs the rewritten graph (default True) or the imported
            graph (False).
        streams: Number of calls that run at the same time (default 1).
        method: Calibration method that found the ranges of int8 values (default None: the precision
            needs no ranges).
        kept: Number of values that could be int8, but stay in the precision `rest` (default 0).
        rest: Precision of the values that stay out of int8 (default "fp32").
        state: Outcome.
        reason: Reason why the candidate was not measured, was rejected, or failed (default "").
        snr_db: Signal-to-noise ratio in dB of the candidate's results, compared with the
            reference's; 200 if they are equal.
        top1_loss: Loss of top-1 accuracy in percentage points; None without labels.
        top1: Top-1 accuracy in percent; None without labels.
        agreement: Percentage of predicted classes and integer outputs that equal the reference's;
            None if no output has classes or integers.
        samples: Number of samples on which the candidate's outputs were compared (default 0).
        median_ms: Median of the time of one call in milliseconds. With several streams, the time of
            simultaneous calls is divided by the number of calls.
        low_ms: Lower quartile of the time of one call in milliseconds.
        high_ms: Upper quartile of the time of one call in milliseconds.
        rounds: Number of rounds in which the candidate was timed (default 0).
        weights_bytes: Size in bytes of the constants that the candidate needs.
        prepare_seconds: Time in seconds that the engine needed to prepare the candidate.
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
        """Name of the candidate in tables and messages: engine, precision and streams."""
        precision = f"{self.precision}+{self.rest}" if self.kept else self.precision
        words = [self.engine, *([precision] if precision else [])]
        if self.streams > 1:
            words.append(f"x{self.streams}")
        return " ".join(words)


class Segment(BaseModel):
    """The times of one part of the model; every part is timed separately.

    Args:
        end: Name of the value at which the part ends; "" for the last part.
        ms: Median time in milliseconds of each candidate that can run the part, by the candidate's
            title.
    """

    model_config = ConfigDict(frozen=True)

    end: str
    ms: dict[str, float]


class Rewritten(BaseModel):
    """The effect of one rewrite: its matches, and the nodes and the time that they save.

    Args:
        name: Name of the rewrite.
        matches: Number of places in the graph that the rewrite changed.
        nodes_saved: Number of nodes that the rewrite removed; negative if it added nodes.
        gained_ms: Time in milliseconds that the rewrite saves in a call of the chosen candidate;
            None if it was not measured.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    matches: int
    nodes_saved: int
    gained_ms: float | None = None


class Report(BaseModel):
    """Report of a compilation.

    Args:
        origin: Description of the model's source, for example the path of its file.
        machine: Machine on which the candidates were measured.
        threads: Number of threads of every candidate.
        target: Quantity that the search minimised: "latency", "throughput" or "memory", as defined
            in `Objective`.
        allowed: Description of the accuracy that each candidate had to reach.
        accuracy: Measured difference of the chosen candidate's outputs from the imported model's in
            float32 (default None: the report does not contain it).
        data: Description of the inputs on which the outputs were compared.
        notes: Sentences about assumptions and omissions of the compilation.
        nodes_before: Number of nodes of the imported graph.
        nodes_after: Number of nodes of the rewritten graph.
        rewrites: Effects of the rewrites that matched.
        candidates: All candidates of the search: first the chosen candidate, then the others,
            sorted by time.
        segments: Times of the model's parts (default: empty; the parts were not timed).
        choice: Sentence that gives the reason for the choice.
        seconds: Duration of the import and of the search in seconds.
        search_seconds: Duration in seconds of the search alone, which `--search-time` limits; None
            in reports of earlier versions.
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
        """The candidate whose recipe the package contains."""
        return next(item for item in self.candidates if item.state is State.CHOSEN)


_STYLES = {
    State.CHOSEN: "bold green",
    State.COMPARED: "dim",
    State.REJECTED: "yellow",
    State.FAILED: "dim",
    State.UNTRIED: "dim",
}


def candidates_table(report: Report) -> Table:
    """Return a table with one row per tried candidate; `summary` lists the untried engines."""
    title = f"{report.origin}: {report.threads} thread{'s' if report.threads > 1 else ''}"
    gpus = "".join(f", {name}" for name in dict.fromkeys(report.machine.gpus))
    table = Table(title=f"{title} of {report.machine.processor}{gpus}", title_justify="left")
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
    for item in (item for item in report.candidates if item.precision is not None):
        table.add_row(*_cells(item, has_labels, has_answers), style=_STYLES.get(item.state))
    return table


def summary(report: Report) -> Text:
    """Return lines of text: the choice, its accuracy, the data, and the effects of rewrites."""
    lines = [Text(report.choice, style="bold")]
    if report.accuracy is not None:
        lines.append(Text(f"Accuracy: {report.accuracy.words}."))
    lines.append(Text(f"Measured on {report.data}; accuracy budget: {report.allowed}."))
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
        "" if item.weights_bytes is None else format_bytes(item.weights_bytes),
        *answers,
        ": ".join(words) + method,
    ]


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _segments_line(segments: Sequence[Segment]) -> str:
    """Return a line: in how many parts each candidate is the fastest, and the total time.

    The total is the sum of the least times of all parts.
    """
    fastest = [min(item.ms, key=lambda title: item.ms[title]) for item in segments]
    wins = ", ".join(f"{name} in {fastest.count(name)}" for name in dict.fromkeys(fastest))
    best = sum(min(item.ms.values()) for item in segments)
    return f"Fastest in {len(segments)} parts: {wins}; the fastest of each add up to {best:.3f} ms."


def _rewrites_line(rewrites: Sequence[Rewritten], before: int, after: int) -> str:
    if not rewrites:
        return f"No rewrite matches in the graph of {before} nodes."
    matches = ", ".join(f"{item.name} {item.matches}{_gain(item)}" for item in rewrites)
    return f"Rewrites turned {before} nodes into {after}: {matches}."


def _gain(item: Rewritten) -> str:
    return "" if item.gained_ms is None else f" ({item.gained_ms:+.3f} ms without it)"
