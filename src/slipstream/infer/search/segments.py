"""Times of a model's parts on each engine; they show whether a split model is faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from slipstream.infer.engines import PRECISIONS, Engine, Executable, Precision, Recipe
from slipstream.infer.engines.protocol import Part
from slipstream.infer.graph.graph import Array, Graph
from slipstream.infer.graph.parts import even_cuts, pieces
from slipstream.infer.measure import MOST_ROUNDS, interleave
from slipstream.infer.package.report import Segment
from slipstream.infer.search.trial import Trial

MOST_CUTS = 7  # greatest number of cuts of a model. Chosen by hand, not measured.
NO_DROPPING = 1e9  # ratio of `interleave` at which no contender, however slow, is dropped


@dataclass(frozen=True)
class SegmentContender:
    """An engine that runs parts of the model, with the recipe of the engine's best candidate.

    Args:
        title: Name of the candidate in reports.
        engine: Engine that runs the part.
        recipe: Recipe of the candidate, which was found for the whole model.
    """

    title: str
    engine: Engine
    recipe: Recipe


def measure_segments(
    graph: Graph,
    contenders: Sequence[SegmentContender],
    threads: int,
    inputs: Mapping[str, Array],
    seconds: float,
    tell: Callable[[str], None],
    most_rounds: int = MOST_ROUNDS,
) -> list[Segment]:
    """Return the time of each engine for each part of the graph; [] if no cut is possible.

    Args:
        graph: Graph that all contenders run.
        contenders: Engines to time. A part has no time for an engine that cannot run this part.
        threads: Number of threads of each engine.
        inputs: Inputs of the graph.
        seconds: Duration of all measurements in seconds, without the time for preparing parts.
        tell: Function called with the current step.
        most_rounds: Greatest number of timing rounds per part (default 200).
    """
    ends = even_cuts(graph, MOST_CUTS)
    if not ends:
        return []
    segments: list[Segment] = []
    values = dict(inputs)
    for piece, end in zip(pieces(graph, ends), [*ends, ""], strict=True):
        tell(f"parts are timed: {len(segments) + 1} of {len(ends) + 1}")
        feeds = {name: values[name] for name in piece.inputs}
        trials = [_ready(item, piece, threads, feeds) for item in contenders]
        ready = {
            item.title: trial.executable
            for item, trial in zip(contenders, trials, strict=True)
            if trial.executable is not None
        }
        if not ready:
            return []
        runs = {title: _run(executable, feeds) for title, executable in ready.items()}
        timings = interleave(
            runs, seconds / (len(ends) + 1), most_rounds=most_rounds, final=NO_DROPPING
        )
        ms = {title: item.median * 1e3 for title, item in timings.items()}
        segments.append(Segment(end=end, ms=ms))
        values.update(next(iter(ready.values())).run(feeds))
        for trial in trials:
            trial.close()
    return segments


def best_parts(segments: Sequence[Segment], contenders: Sequence[SegmentContender]) -> Recipe:
    """Return the recipe that runs each part on its fastest engine.

    The recipe has no parts if one engine is the fastest for all parts.
    """
    recipes = {item.title: item.recipe for item in contenders}
    fastest = [(min(item.ms, key=lambda title: item.ms[title]), item.end) for item in segments]
    runs = [
        (title, list(ends)[-1][1]) for title, ends in groupby(fastest, key=lambda pair: pair[0])
    ]
    parts = tuple(Part(end=end, recipe=recipes[title]) for title, end in runs)
    if len(parts) == 1:
        return parts[0].recipe
    used = {part.recipe.precision for part in parts}
    precision: Precision = next(name for name in reversed(PRECISIONS) if name in used)
    return Recipe(engine="split", precision=precision, parts=parts)


def _ready(
    contender: SegmentContender, piece: Graph, threads: int, inputs: Mapping[str, Array]
) -> Trial:
    """Prepare a part of the model for one engine.

    The result has no executable if the engine cannot run the part.
    """
    trial = Trial(contender.engine, contender.recipe)
    trial.prepare(piece, threads, inputs)
    return trial


def _run(executable: Executable, inputs: Mapping[str, Array]) -> Callable[[], object]:
    return lambda: executable.run(inputs)
