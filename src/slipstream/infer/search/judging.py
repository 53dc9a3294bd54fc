"""Judging of candidates: outputs are compared with the reference's outputs, sample by sample.

Candidates in int8 are tried only if there are enough samples and time to measure their accuracy, so
that no candidate of unknown accuracy is chosen. The chosen candidate is judged once more, on
samples that had no part in the choice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from slipstream.infer.accuracy.accuracy import ENOUGH, Comparison
from slipstream.infer.accuracy.division import LEAST
from slipstream.infer.engines import Executable
from slipstream.infer.package.report import State
from slipstream.infer.samples import Sample, Samples
from slipstream.infer.search.autotuner import NO_TIME, Autotuner
from slipstream.infer.search.trial import Trial

# Shares of the search time: the time at which judging must end, and its least duration, even if
# earlier steps took longer than planned. Chosen by hand, not measured.
JUDGING_ENDS, LEAST_JUDGING = 0.65, 0.15
# Time to observe the values of a sample, as a multiple of a run of the reference. Estimated, not
# measured.
OBSERVING = 3


def samples_until(
    tuner: Autotuner,
    samples: Samples,
    end: float,
    *,
    least: int = ENOUGH,
    first: int = 0,
    step: str = "outputs are compared",
) -> Iterator[Sample]:
    """Yield samples until a share of the search time has passed, and report the progress.

    Args:
        tuner: Autotuner of the search.
        samples: Samples to draw from, in their order.
        end: Share of the search time at which to stop.
        least: Number of samples that are yielded in any case, even after `end` (default 8).
        first: Index of the first sample to yield (default 0).
        step: Description of the step for the report of progress.
    """
    for index in range(first, len(samples)):
        if index >= first + least and tuner.share() > end:
            break
        tuner.say(f"{step}: sample {index + 1} of {len(samples)}")
        yield samples[index]


def reason_against_bytes(tuner: Autotuner) -> str:
    """Return the reason not to try int8 (too few samples or too little time), or ""."""
    context = tuner.context
    count = len(context.samples.calibration)
    if not count:
        return (
            f"there are {len(context.samples.judged)} samples, and int8 needs {LEAST}: a quarter"
            f" calibrates it, {ENOUGH} or more judge it, and a quarter is held out to measure the"
            " accuracy of the choice"
        )
    fastest = min((trial.run_seconds for trial in tuner.alive()), default=0.0)
    calls = OBSERVING * min(count, ENOUGH) + 2 * ENOUGH  # to observe, to calibrate, to judge
    preparation = min((tuner.ready_seconds(engine.name) for engine in context.engines), default=0.0)
    needed = preparation + calls * context.reference.seconds + 2 * ENOUGH * fastest
    left = context.limit.left(JUDGING_ENDS)
    if needed <= left:
        return ""
    enough = context.objective.seconds + (needed - left) / JUDGING_ENDS
    return (
        f"int8 takes about {needed:.0f} s to calibrate and to judge on {ENOUGH} samples, and"
        f" {left:.0f} s are left for it; --search-time {math.ceil(enough / 10) * 10}s gives it"
        " enough"
    )


def judge(tuner: Autotuner, trials: Sequence[Trial], end: float = JUDGING_ENDS) -> None:
    """Compare candidates on as many samples as time allows; reject inaccurate candidates.

    A candidate that is hopeless after the first few samples is compared on no more samples.
    """
    context = tuner.context
    judged, objective = context.samples.judged, context.objective
    least = min(ENOUGH, len(judged))
    affordable = _affordable(tuner, trials, least, end)
    context.reference.compare(_rivals(affordable), samples_until(tuner, judged.first(least), end))
    hopeful = [trial for trial in affordable if objective.is_hopeful(trial.comparison)]
    others = samples_until(tuner, judged, end, least=0, first=least)
    context.reference.compare(_rivals(hopeful), others if hopeful else ())
    for trial in affordable:
        objection = objective.objection(trial.recipe, trial.comparison)
        if objection:
            trial.end(State.REJECTED, objection)


def confirmed(tuner: Autotuner, end: float) -> Trial:
    """Return the best candidate that is accurate enough on the held-out samples, too.

    Better candidates that are too inaccurate on the held-out samples are rejected. Raises
    UnsupportedError if no candidate is left.
    """
    while True:
        best = tuner.best()
        if not _is_refuted(tuner, best, end):
            return best


def _is_refuted(tuner: Autotuner, trial: Trial, end: float) -> bool:
    """Return whether a candidate is too inaccurate on the held-out samples; if so, reject it."""
    context = tuner.context
    held_out = context.samples.held_out
    if not len(held_out):
        return False
    tuner.reopen(trial)
    if trial.executable is None:
        return True
    trial.held_out = context.reference.comparison()
    rivals = [(trial.executable, trial.held_out)]
    context.reference.compare(rivals, samples_until(tuner, held_out, end))
    objection = context.objective.refutes(trial.recipe, trial.comparison, trial.held_out)
    if objection:
        trial.end(State.REJECTED, f"on {trial.held_out.samples} samples held out, {objection}")
    return bool(objection)


def _affordable(tuner: Autotuner, trials: Sequence[Trial], count: int, end: float) -> list[Trial]:
    """Return the candidates that can be compared on `count` samples; close the others.

    The comparison must end when the share `end` of the search time has passed. The fastest
    candidates are returned. If there are candidates in float32, the fastest of these is always
    returned.
    """
    context = tuner.context
    share = max(end - tuner.share(), LEAST_JUDGING)
    left = share * context.objective.seconds - count * context.reference.seconds
    order = sorted(trials, key=lambda trial: trial.run_seconds)
    safe = next((trial for trial in order if trial.recipe.precision == "fp32"), None)
    order.sort(key=lambda trial: trial is not safe)
    affordable: list[Trial] = []
    for trial in order:
        left -= count * trial.run_seconds
        if affordable and left < 0:
            trial.end(State.UNTRIED, f"{NO_TIME} to judge it on {count} samples")
            context.limit.cut("judge all candidates", count * trial.run_seconds, end)
        else:
            affordable.append(trial)
    return affordable


def _rivals(trials: Sequence[Trial]) -> list[tuple[Executable, Comparison]]:
    return [(trial.executable, trial.comparison) for trial in trials if trial.executable]
