"""Candidates in int8, and candidates of mixed precision.

In an int8 candidate, all values that can be int8 are int8; in a mixed precision, only some of them.

Identifiers and messages call values in int8 "bytes", because activations are stored as uint8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from slipstream.infer.accuracy.accuracy import ENOUGH, Comparison
from slipstream.infer.accuracy.reference import ReferenceCases
from slipstream.infer.engines import Engine, Precision, Recipe
from slipstream.infer.graph.analysis import analyse
from slipstream.infer.graph.graph import Array, Graph
from slipstream.infer.native.precision import storable
from slipstream.infer.quantize.observe import METHODS, Histogram, Method, observe
from slipstream.infer.quantize.shifts import shifts_of
from slipstream.infer.samples import Sample
from slipstream.infer.search.autotuner import Autotuner
from slipstream.infer.search.judging import samples_until
from slipstream.infer.search.mixed_precision import MixedPrecision, PrecisionPart
from slipstream.infer.search.trial import Trial

# Shares of the search time at which each step must end. Chosen by hand, not measured.
OBSERVING_ENDS, CALIBRATION_ENDS, CASES_END, MIXING_ENDS, MIXED_ENDS = 0.2, 0.3, 0.35, 0.5, 0.7
# Share of the time for mixed precision that may be spent on measuring the noise of parts. Chosen by
# hand, not measured.
PARTS_SHARE = 0.7
# Greatest number of samples that judge mixed precisions. Chosen by hand, not measured.
MOST_CASES = 64
# Least number of candidates that are prepared to find a mixed precision: two that are profiled, and
# one per method of calibration, to measure the noise of a part.
LEAST_PREPARATIONS = 2 + len(METHODS)


def add_bytes(tuner: Autotuner, add: Callable[[Trial], None]) -> dict[str, Histogram]:
    """Prepare candidates in int8 and call `add` with each; return the observed histograms.

    The most accurate calibration method is found on one engine. The other engines use the
    same ranges, because ranges belong to the graph.
    """
    context = tuner.context
    for engine, recipe in tuner.recipes("int8-weights"):
        add(tuner.ready(engine, recipe))
    wholes = list(tuner.recipes("int8"))
    are_matrices = _is_of_matrices(context.rewritten)
    dynamic = list(tuner.recipes("int8-dynamic")) if are_matrices else []
    names = storable(context.rewritten)
    if not (wholes or dynamic) or not names:
        return {}
    histograms = _observe(tuner, names)
    means = {name: histogram.means for name, histogram in histograms.items()}
    update = {"shifts": shifts_of(context.rewritten, means)}
    for engine, recipe in dynamic:
        add(tuner.ready(engine, recipe.model_copy(update=update)))
    wholes = [(engine, recipe.model_copy(update=update)) for engine, recipe in wholes]
    wholes.sort(key=lambda item: not item[0].is_quick_to_prepare)
    _add_wholes(tuner, add, wholes, histograms)
    return histograms


def _observe(tuner: Autotuner, names: Iterable[str]) -> dict[str, Histogram]:
    """Run the calibration samples, and return the histogram of each value in `names`."""
    calibration = tuner.context.samples.calibration
    samples = samples_until(tuner, calibration, OBSERVING_ENDS, step="values are observed")
    inputs: list[Mapping[str, Array]] = []
    histograms = observe(tuner.context.rewritten, _recorded(samples, inputs), names)
    tuner.set_calibrated(len(inputs))
    return histograms


def _recorded(
    samples: Iterable[Sample], inputs: list[Mapping[str, Array]]
) -> Iterator[Mapping[str, Array]]:
    """Yield the inputs of each sample, and append the same inputs to the list `inputs`."""
    for sample in samples:
        inputs.append(sample.inputs)
        yield sample.inputs


def _add_wholes(
    tuner: Autotuner,
    add: Callable[[Trial], None],
    recipes: Iterable[tuple[Engine, Recipe]],
    histograms: Mapping[str, Histogram],
) -> None:
    """Prepare the candidates with int8 for all values that can be int8; call `add` with each."""
    calibrated: Trial | None = None
    for engine, recipe in recipes:
        if calibrated is None:
            trial = _calibrated(tuner, engine, recipe, histograms)
            calibrated = None if trial.executable is None else trial
        else:
            same = recipe.model_copy(update={"ranges": calibrated.recipe.ranges})
            trial = tuner.ready(engine, same, calibrated.method)
        add(trial)


def _is_of_matrices(graph: Graph) -> bool:
    """Return whether matrix products, which int8-dynamic computes, outweigh the convolutions."""
    products = [node for node in analyse(graph).nodes if node.is_product]
    convolutions = sum(node.flops for node in products if node.op in ("Conv", "ConvTranspose"))
    return 2 * convolutions < sum(node.flops for node in products)


def _calibrated(
    tuner: Autotuner, engine: Engine, recipe: Recipe, histograms: Mapping[str, Histogram]
) -> Trial:
    """Return the candidate with the calibration method that gives the most accurate outputs."""
    context = tuner.context
    judged = context.samples.judged.first(ENOUGH)
    cases = context.reference.cases(samples_until(tuner, judged, 1.0))
    best = tuner.ready(engine, _with(recipe, histograms, METHODS[0]), METHODS[0])
    if best.executable is None:
        return best
    best_db = _compared(best, cases).snr_db
    needed = tuner.ready_seconds(engine.name) + ENOUGH * best.run_seconds
    for method in METHODS[1:]:
        if not context.limit.fits("calibrate by every method", needed, CALIBRATION_ENDS):
            continue
        other = tuner.ready(engine, _with(recipe, histograms, method), method)
        if other.executable is None:
            continue
        snr_db = _compared(other, cases).snr_db
        if snr_db > best_db:
            best, other, best_db = other, best, snr_db
        other.close()
    return best


def add_mixed_precisions(tuner: Autotuner, histograms: Mapping[str, Histogram]) -> None:
    """Add candidates of mixed precision if int8 for all possible values is too inaccurate.

    Measurements on one engine decide which values stay in floating point; the other engines keep
    the same values in floating point. For the measurements, engines that can measure the time of
    each step (`Engine.measures_steps`) are preferred.
    """
    wholes = [trial for trial in tuner.alive() if trial.recipe.precision == "int8"]
    wholes.sort(key=lambda trial: not trial.engine.measures_steps)
    if not wholes:
        return
    context = tuner.context
    samples = context.samples.judged.turns(context.samples.calibration).first(MOST_CASES)
    cases = context.reference.cases(samples_until(tuner, samples, CASES_END))
    whole = wholes[0]
    if not _objection(tuner, whole, cases):
        return
    seconds = tuner.ready_seconds(whole.engine.name) + len(cases) * whole.run_seconds
    count = LEAST_PREPARATIONS + math.ceil(math.log2(max(len(histograms), 1) + 1))
    if not context.limit.fits("mix bytes and floats", count * seconds, MIXING_ENDS):
        return
    recipe = whole.recipe.model_copy(update={"rest": _rest(tuner, whole.engine, cases)})
    mixing = _Mixing(tuner, whole.engine, recipe, histograms, cases, seconds)
    added: list[Mapping[str, tuple[float, float]]] = []
    for mixed in mixing.recipes():
        if mixed.ranges not in added:
            _add_mixed(tuner, len(histograms), mixed)
            added.append(mixed.ranges)


@dataclass(frozen=True)
class _Mixing:
    """The search for mixed precisions on one engine, within the time limit.

    Args:
        tuner: Autotuner of the search.
        engine: Engine that runs the candidates.
        recipe: Recipe in which all values that can be int8 are int8.
        histograms: Histograms of the observed values, by name.
        cases: Samples, with the outputs of the reference, on which the candidates are judged.
        seconds: Expected time in seconds to prepare one candidate and to run it on all cases.
    """

    tuner: Autotuner
    engine: Engine
    recipe: Recipe
    histograms: Mapping[str, Histogram]
    cases: ReferenceCases
    seconds: float

    def recipes(self) -> list[Recipe]:
        """Return three recipes to try, or none if no mixed precision is accurate enough.

        Bisection found the first recipe. The second has fewer, the third more values in floating
        point.
        """
        tuner, context = self.tuner, self.tuner.context
        mixed = MixedPrecision(
            self.engine,
            context.rewritten,
            self.recipe,
            [_ranges(self.histograms, method) for method in METHODS],
            context.objective.threads,
            self.cases,
        )
        seconds = context.limit.left(MIXING_ENDS) * PARTS_SHARE
        order = mixed.order(seconds, tuner.say, context.limit.clock)
        tuner.say("a mixed precision is searched for")
        count = mixed.least(order, self._is_good, self._has_time)
        if count == len(order):
            tuner.note("no mixed precision with bytes was found that is accurate enough")
            return []
        pruned = mixed.pruned(order, count, self._is_good, lambda: tuner.share() <= MIXING_ENDS)
        safer = order[(count + len(order)) // 2 :]
        choices: tuple[list[PrecisionPart], ...] = (order[count:], pruned, safer)
        return [mixed.of(parts) for parts in choices]

    def _is_good(self, comparison: Comparison) -> bool:
        return not self.tuner.context.objective.objection(self.recipe, comparison)

    def _has_time(self) -> bool:
        return self.tuner.context.limit.fits("mix bytes and floats", self.seconds, MIXING_ENDS)


def _add_mixed(tuner: Autotuner, num_values: int, mixed: Recipe) -> None:
    """Add candidates of all engines for a mixed precision that was found with one engine."""
    for engine, recipe in tuner.recipes("int8"):
        rest = mixed.rest if mixed.rest in _rests(engine) else "fp32"
        update = {"ranges": mixed.ranges, "shifts": mixed.shifts, "rest": rest}
        trial = tuner.ready(engine, recipe.model_copy(update=update), "noise", MIXED_ENDS)
        trial.kept = num_values - len(mixed.ranges)
        tuner.add(trial)


def _objection(tuner: Autotuner, trial: Trial, cases: ReferenceCases) -> str:
    """Return why a candidate is too inaccurate on `cases`, or "" if it is accurate enough."""
    return tuner.context.objective.objection(trial.recipe, _compared(trial, cases))


def _compared(trial: Trial, cases: ReferenceCases) -> Comparison:
    assert trial.executable is not None
    return cases.compare(trial.executable)


def _rest(tuner: Autotuner, engine: Engine, cases: ReferenceCases) -> Precision:
    """Return the fastest accurate precision for the values that are not int8.

    The result is "fp32" if no faster precision is accurate enough.
    """
    for precision in _rests(engine):
        trials = (trial for trial in tuner.alive() if trial.recipe.precision == precision)
        trial = next((trial for trial in trials if trial.recipe.engine == engine.name), None)
        if trial is not None and not _objection(tuner, trial, cases):
            return precision
    return "fp32"


def _rests(engine: Engine) -> tuple[Precision, ...]:
    """Return the precisions that an engine can combine with int8, the fastest precision first."""
    dynamic: tuple[Precision, ...] = ("int8-dynamic",) if engine.mixes_dynamic else ()
    return (*dynamic, *(("bf16",) if "bf16" in engine.precisions() else ()))


def _ranges(histograms: Mapping[str, Histogram], method: Method) -> dict[str, tuple[float, float]]:
    return {name: histogram.range(method) for name, histogram in histograms.items()}


def _with(recipe: Recipe, histograms: Mapping[str, Histogram], method: Method) -> Recipe:
    return recipe.model_copy(update={"ranges": _ranges(histograms, method)})
