"""Candidates that compute on bytes: all values that may be, or a mixture with floating point."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from slipstream.infer.accuracy.accuracy import ENOUGH, Comparison
from slipstream.infer.data import Sample
from slipstream.infer.engines import ENGINES, Engine, Precision, Recipe
from slipstream.infer.graph.analysis import analyse
from slipstream.infer.graph.graph import Array, Graph
from slipstream.infer.native.precision import storable
from slipstream.infer.quantize.observe import METHODS, Histogram, Method, observe
from slipstream.infer.quantize.shifts import shifts_of
from slipstream.infer.search.autotuner import Autotuner
from slipstream.infer.search.judging import some
from slipstream.infer.search.mixed_precision import MixedPrecision, ReferenceCase
from slipstream.infer.search.trial import Trial

# Shares of the time until which each part may go on.
OBSERVING_ENDS, CALIBRATION_ENDS, CASES_END, MIXING_ENDS, MIXED_ENDS = 0.2, 0.3, 0.35, 0.5, 0.7
PARTS_SHARE = 0.7  # of the time for mixtures, in which the noise of each part is measured
MOST_CASES = 64  # samples that judge mixtures
LEAST_MIXTURES = 2 + len(METHODS)  # that are made ready to measure times, and the noise of a part


def add_bytes(tuner: Autotuner, add: Callable[[Trial], None]) -> dict[str, Histogram]:
    """Make candidates with bytes ready, and `add` each; returns what values were seen.

    The first engine that can compute on them finds the method of calibration; ranges are the
    graph's, so the others take the same.
    """
    for engine, recipe in tuner.recipes("int8-weights"):
        add(tuner.ready(engine, recipe))
    wanted = list(tuner.recipes("int8"))
    dynamic = list(tuner.recipes("int8-dynamic")) if _is_of_matrices(tuner.rewritten) else []
    names = storable(tuner.rewritten)
    if not (wanted or dynamic) or not names:
        return {}
    seen = some(tuner, tuner.samples.calibration, OBSERVING_ENDS, what="values are observed")
    inputs: list[Mapping[str, Array]] = []
    histograms = observe(tuner.rewritten, _recorded(seen, inputs), names)
    tuner.calibrated = len(inputs)
    means = {name: histogram.means for name, histogram in histograms.items()}
    shifts = {"shifts": shifts_of(tuner.rewritten, means)}
    for engine, recipe in dynamic:
        add(tuner.ready(engine, recipe.model_copy(update=shifts)))
    wanted = [(engine, recipe.model_copy(update=shifts)) for engine, recipe in wanted]
    wanted.sort(key=lambda item: not item[0].is_quick_to_prepare)
    first: Trial | None = None
    for engine, recipe in wanted:
        if first is None:
            trial = _calibrated(tuner, engine, recipe, histograms)
            first = None if trial.executable is None else trial
        else:
            same = recipe.model_copy(update={"ranges": first.recipe.ranges})
            trial = tuner.ready(engine, same, first.method)
        add(trial)
    return histograms


def _recorded(
    samples: Iterable[Sample], inputs: list[Mapping[str, Array]]
) -> Iterator[Mapping[str, Array]]:
    """Yield the inputs of samples, and append each to `inputs`."""
    for sample in samples:
        inputs.append(sample.inputs)
        yield sample.inputs


def _is_of_matrices(graph: Graph) -> bool:
    """Return whether most operations are products of matrices, which int8-dynamic covers."""
    nodes = [node for node in analyse(graph).nodes if node.is_product]
    of_images = sum(node.flops for node in nodes if node.op in ("Conv", "ConvTranspose"))
    return 2 * of_images < sum(node.flops for node in nodes)


def _calibrated(
    tuner: Autotuner, engine: Engine, recipe: Recipe, histograms: Mapping[str, Histogram]
) -> Trial:
    """Return the candidate whose calibration method gives the most accurate results."""
    few = tuner.reference.cases(some(tuner, tuner.samples.judged.first(ENOUGH), 1.0))
    best = tuner.ready(engine, _with(recipe, histograms, METHODS[0]), METHODS[0])
    if best.executable is None:
        return best
    least = _compared(tuner, best, few).snr_db
    needed = tuner.ready_seconds(engine.name) + ENOUGH * best.run_seconds
    for method in METHODS[1:]:
        if not tuner.limit.fits("calibrate by every method", needed, CALIBRATION_ENDS):
            continue
        other = tuner.ready(engine, _with(recipe, histograms, method), method)
        if other.executable is None:
            continue
        found = _compared(tuner, other, few).snr_db
        if found > least:
            best, other, least = other, best, found
        other.close()
    return best


def add_mixtures(tuner: Autotuner, histograms: Mapping[str, Histogram]) -> None:
    """Add candidates of mixed precision if bytes everywhere are not accurate enough.

    The first engine with bytes determines the values that stay in floating point; the other
    engines take the same values.
    """
    bytes_ = [trial for trial in tuner.alive() if trial.recipe.precision == "int8"]
    bytes_.sort(key=lambda trial: not ENGINES[trial.recipe.engine].measures_steps)
    if not bytes_:
        return
    samples = tuner.samples.judged.turns(tuner.samples.calibration).first(MOST_CASES)
    cases = tuner.reference.cases(some(tuner, samples, CASES_END))
    first = bytes_[0]
    if not _objections(tuner, first, cases):
        return
    engine = next(item for item in tuner.engines if item.name == first.recipe.engine)
    trials = LEAST_MIXTURES + math.ceil(math.log2(max(len(histograms), 1) + 1))
    needed = tuner.ready_seconds(engine.name) + len(cases) * first.run_seconds
    if not tuner.limit.fits("mix bytes and floats", trials * needed, MIXING_ENDS):
        return
    recipe = first.recipe.model_copy(update={"rest": _rest(tuner, engine, cases)})
    ranges = [_ranges(histograms, method) for method in METHODS]
    mixture = MixedPrecision(
        engine,
        tuner.rewritten,
        recipe,
        ranges,
        tuner.objective.threads,
        cases,
        yardstick=tuner.reference.yardstick,
    )
    seconds = tuner.limit.left(MIXING_ENDS) * PARTS_SHARE
    order = mixture.order(seconds, tuner.say, tuner.limit.clock)
    tuner.say("a mixture of bytes and floats is looked for")

    def is_good(found: Comparison) -> bool:
        return not tuner.objective.objection(recipe, found)

    def go_on() -> bool:
        return tuner.limit.fits("mix bytes and floats", needed, MIXING_ENDS)

    count = mixture.least(order, is_good, go_on)
    if count == len(order):
        tuner.note("no mixture with bytes was found that is good enough")
        return
    safer = order[(count + len(order)) // 2 :]
    taken = mixture.pruned(order, count, is_good, lambda: tuner.share() <= MIXING_ENDS)
    tried: list[Mapping[str, tuple[float, float]]] = []
    for parts in (order[count:], taken, safer):
        mixed = mixture.of(parts)
        if mixed.ranges not in tried:
            _add_mixture(tuner, len(histograms), mixed)
            tried.append(mixed.ranges)


def _add_mixture(tuner: Autotuner, values: int, mixed: Recipe) -> None:
    """Add the mixed precision that one engine found, on every engine."""
    for engine, recipe in tuner.recipes("int8"):
        rest = mixed.rest if mixed.rest in _rests(engine) else "fp32"
        update = {"ranges": mixed.ranges, "shifts": mixed.shifts, "rest": rest}
        trial = tuner.ready(engine, recipe.model_copy(update=update), "noise", MIXED_ENDS)
        trial.kept = values - len(mixed.ranges)
        tuner.add(trial)


def _objections(tuner: Autotuner, trial: Trial, cases: Sequence[ReferenceCase]) -> str:
    """Return the objection to a trial by its results in some cases, or ""."""
    return tuner.objective.objection(trial.recipe, _compared(tuner, trial, cases))


def _compared(tuner: Autotuner, trial: Trial, cases: Sequence[ReferenceCase]) -> Comparison:
    assert trial.executable is not None
    found = tuner.reference.comparison()
    for case in cases:
        found.add(trial.executable.run(case.sample.inputs), case.right, case.sample.labels)
    return found


def _rest(tuner: Autotuner, engine: Engine, cases: Sequence[ReferenceCase]) -> Precision:
    """Return the fastest precision beside bytes that is accurate enough, else fp32."""
    for precision in _rests(engine):
        trials = (t for t in tuner.alive() if t.recipe.precision == precision)
        trial = next((t for t in trials if t.recipe.engine == engine.name), None)
        if trial is not None and not _objections(tuner, trial, cases):
            return precision
    return "fp32"


def _rests(engine: Engine) -> tuple[Precision, ...]:
    """Return the precisions that an engine can compute beside bytes, the fastest first."""
    dynamic: tuple[Precision, ...] = ("int8-dynamic",) if engine.mixes_dynamic else ()
    return (*dynamic, *(("bf16",) if "bf16" in engine.precisions() else ()))


def _ranges(histograms: Mapping[str, Histogram], method: Method) -> dict[str, tuple[float, float]]:
    return {name: histogram.range(method) for name, histogram in histograms.items()}


def _with(recipe: Recipe, histograms: Mapping[str, Histogram], method: Method) -> Recipe:
    return recipe.model_copy(update={"ranges": _ranges(histograms, method)})
