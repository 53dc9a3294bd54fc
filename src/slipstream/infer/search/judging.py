"""Judging of candidates: their outputs are compared with the reference's, sample by sample.

Candidates in bytes are tried only if there are enough samples and time to measure their accuracy,
so that no candidate of unknown accuracy is chosen. The chosen candidate is judged once more, on
samples that had no part in the choice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from slipstream.infer.accuracy.accuracy import ENOUGH, Comparison
from slipstream.infer.accuracy.division import LEAST
from slipstream.infer.data import Sample, Samples
from slipstream.infer.engines import Executable
from slipstream.infer.package.report import State
from slipstream.infer.search.autotuner import NO_TIME, Autotuner
from slipstream.infer.search.trial import Trial

# Share of the search time at which judging must end. Chosen by hand, not measured.
JUDGING_ENDS = 0.65
LEAST_JUDGING = 0.15  # of the time, also where what came before took longer than it should
OBSERVING = 3  # runs of the reference that observing a sample's values takes, about


def some(
    tuner: Autotuner,
    samples: Samples,
    end: float,
    *,
    least: int = ENOUGH,
    first: int = 0,
    what: str = "results are compared",
) -> Iterator[Sample]:
    """Yield samples from `first` on until a share `end` of the time has passed.

    At least `least` samples are yielded, if there are so many.
    """
    for index in range(first, len(samples)):
        if index >= first + least and tuner.share() > end:
            break
        tuner.say(f"{what}: sample {index + 1} of {len(samples)}")
        yield samples[index]


def against_bytes(tuner: Autotuner) -> str:
    """Return the reason not to try bytes (too few samples or too little time), or ""."""
    count = len(tuner.samples.calibration)
    if not count:
        number = len(tuner.samples.judged)
        return (
            f"there are {number} samples, and int8 needs {LEAST}: a quarter calibrates it,"
            f" {ENOUGH} or more judge it, and a quarter is held out to tell how good it is"
        )
    fastest = min((trial.run_seconds for trial in tuner.alive()), default=0.0)
    calls = OBSERVING * min(count, ENOUGH) + 2 * ENOUGH  # to observe, to calibrate, to judge
    making = min((tuner.ready_seconds(engine.name) for engine in tuner.engines), default=0.0)
    needed = making + calls * tuner.reference.seconds + 2 * ENOUGH * fastest
    left = tuner.limit.left(JUDGING_ENDS)
    if needed <= left:
        return ""
    enough = tuner.objective.seconds + (needed - left) / JUDGING_ENDS
    return (
        f"int8 takes about {needed:.0f} s to calibrate and to judge on {ENOUGH} samples, and"
        f" {left:.0f} s are left for it; --time {math.ceil(enough / 10) * 10}s gives it enough"
    )


def judge(tuner: Autotuner, trials: Sequence[Trial], end: float = JUDGING_ENDS) -> None:
    """Compare candidates on as many samples as time allows, and reject inaccurate ones.

    A candidate that is hopeless after the first few samples is compared on no others.
    """
    judged = tuner.samples.judged
    least = min(ENOUGH, len(judged))
    able = _affordable(tuner, trials, least, end)
    tuner.reference.compare(_rivals(able), some(tuner, judged.first(least), end))
    hopeful = [trial for trial in able if tuner.objective.is_hopeful(trial.comparison)]
    others = some(tuner, judged, end, least=0, first=least)
    tuner.reference.compare(_rivals(hopeful), others if hopeful else ())
    for trial in able:
        objection = tuner.objective.objection(trial.recipe, trial.comparison)
        if objection:
            trial.end(State.REJECTED, objection)


def confirmed(tuner: Autotuner, end: float) -> Trial:
    """Return the best candidate that is accurate enough on the held-out samples, too.

    Candidates that are not are rejected; UnsupportedError is raised if none is left.
    """
    while True:
        best = tuner.best()
        if not _is_refuted(tuner, best, end):
            return best


def _is_refuted(tuner: Autotuner, trial: Trial, end: float) -> bool:
    held_out = tuner.samples.held_out
    if not len(held_out):
        return False
    tuner.reopen(trial)
    if trial.executable is None:
        return True
    trial.held_out = tuner.reference.comparison()
    rivals = [(trial.executable, trial.held_out)]
    tuner.reference.compare(rivals, some(tuner, held_out, end))
    objection = tuner.objective.refutes(trial.recipe, trial.comparison, trial.held_out)
    if objection:
        trial.end(State.REJECTED, f"on {trial.held_out.samples} samples held out, {objection}")
    return bool(objection)


def _affordable(tuner: Autotuner, trials: Sequence[Trial], count: int, end: float) -> list[Trial]:
    """Return the candidates that can be compared on `count` samples in time.

    The time ends when a share `end` has passed. These are the fastest ones, and always one in
    float32.
    """
    share = max(end - tuner.share(), LEAST_JUDGING)
    left = share * tuner.objective.seconds - count * tuner.reference.seconds
    order = sorted(trials, key=lambda trial: trial.run_seconds)
    safe = next((trial for trial in order if trial.recipe.precision == "fp32"), None)
    order.sort(key=lambda trial: trial is not safe)
    found: list[Trial] = []
    for trial in order:
        left -= count * trial.run_seconds
        if found and left < 0:
            trial.end(State.UNTRIED, f"{NO_TIME} to judge it on {count} samples")
            tuner.limit.cut("judge all candidates", count * trial.run_seconds, end)
        else:
            found.append(trial)
    return found


def _rivals(trials: Sequence[Trial]) -> list[tuple[Executable, Comparison]]:
    return [(trial.executable, trial.comparison) for trial in trials if trial.executable]
