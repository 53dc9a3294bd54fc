"""Candidates are judged: their results are held against the reference's, sample by sample.

Candidates of bytes need samples for it, and time. Where either does not suffice they are not tried,
so that nothing wins of which nobody knows how good it is. What is chosen is judged once more, on
samples that had no part in choosing it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from slipstream.infer.accuracy.accuracy import ENOUGH, Comparison
from slipstream.infer.accuracy.division import LEAST
from slipstream.infer.data import Sample, Samples
from slipstream.infer.engines import Executable
from slipstream.infer.package.report import State
from slipstream.infer.search.contest import NO_TIME, Contest
from slipstream.infer.search.trial import Trial

JUDGING_ENDS = 0.65  # of the time
LEAST_JUDGING = 0.15  # of the time, also where what came before took longer than it should
OBSERVING = 3  # runs of the reference that observing a sample's values takes, about


def some(
    contest: Contest,
    samples: Samples,
    end: float,
    *,
    least: int = ENOUGH,
    first: int = 0,
    what: str = "results are compared",
) -> Iterator[Sample]:
    """Samples from a number on, until a share of the time has passed; `least` in any case."""
    for index in range(first, len(samples)):
        if index >= first + least and contest.share() > end:
            break
        contest.say(f"{what}: sample {index + 1} of {len(samples)}")
        yield samples[index]


def against_bytes(contest: Contest) -> str:
    """Why bytes are not tried: too few samples, or too little time, to tell how good they are; ""
    where nothing speaks against them."""
    count = len(contest.samples.calibration)
    if not count:
        number = len(contest.samples.judged)
        return (
            f"there are {number} samples, and int8 needs {LEAST}: a quarter calibrates it,"
            f" {ENOUGH} or more judge it, and a quarter is held out to tell how good it is"
        )
    fastest = min((trial.run_seconds for trial in contest.alive()), default=0.0)
    calls = OBSERVING * min(count, ENOUGH) + 2 * ENOUGH  # to observe, to calibrate, to judge
    making = min((contest.ready_seconds(engine.name) for engine in contest.engines), default=0.0)
    needed = making + calls * contest.reference.seconds + 2 * ENOUGH * fastest
    left = contest.limit.left(JUDGING_ENDS)
    if needed <= left:
        return ""
    enough = contest.goal.seconds + (needed - left) / JUDGING_ENDS
    return (
        f"int8 takes about {needed:.0f} s to calibrate and to judge on {ENOUGH} samples, and"
        f" {left:.0f} s are left for it; --time {math.ceil(enough / 10) * 10}s gives it enough"
    )


def judge(contest: Contest, trials: Sequence[Trial], end: float = JUDGING_ENDS) -> None:
    """Compare candidates on as many samples as time allows, and reject the bad ones. Those that the
    first few show to be bad take no more of the time."""
    judged = contest.samples.judged
    least = min(ENOUGH, len(judged))
    able = _affordable(contest, trials, least, end)
    contest.reference.compare(_rivals(able), some(contest, judged.first(least), end))
    hopeful = [trial for trial in able if contest.goal.is_hopeful(trial.comparison)]
    others = some(contest, judged, end, least=0, first=least)
    contest.reference.compare(_rivals(hopeful), others if hopeful else ())
    for trial in able:
        objection = contest.goal.objection(trial.recipe, trial.comparison)
        if objection:
            trial.end(State.REJECTED, objection)


def confirmed(contest: Contest, end: float) -> Trial:
    """The best candidate that is as good on the samples that were held out; those that are not are
    rejected. UnsupportedError where none is left."""
    while True:
        best = contest.best()
        if not _is_refuted(contest, best, end):
            return best


def _is_refuted(contest: Contest, trial: Trial, end: float) -> bool:
    held_out = contest.samples.held_out
    if not len(held_out):
        return False
    contest.reopen(trial)
    if trial.executable is None:
        return True
    trial.held_out = contest.reference.comparison()
    rivals = [(trial.executable, trial.held_out)]
    contest.reference.compare(rivals, some(contest, held_out, end))
    objection = contest.goal.refutes(trial.recipe, trial.comparison, trial.held_out)
    if objection:
        trial.end(State.REJECTED, f"on {trial.held_out.samples} samples held out, {objection}")
    return bool(objection)


def _affordable(contest: Contest, trials: Sequence[Trial], count: int, end: float) -> list[Trial]:
    """Those that can be compared on so many samples until a share of the time has passed: the
    fastest ones, and one of float32 in any case."""
    share = max(end - contest.share(), LEAST_JUDGING)
    left = share * contest.goal.seconds - count * contest.reference.seconds
    order = sorted(trials, key=lambda trial: trial.run_seconds)
    safe = next((trial for trial in order if trial.recipe.precision == "fp32"), None)
    order.sort(key=lambda trial: trial is not safe)
    found: list[Trial] = []
    for trial in order:
        left -= count * trial.run_seconds
        if found and left < 0:
            trial.end(State.UNTRIED, f"{NO_TIME} to judge it on {count} samples")
            contest.limit.cut("judge all candidates", count * trial.run_seconds, end)
        else:
            found.append(trial)
    return found


def _rivals(trials: Sequence[Trial]) -> list[tuple[Executable, Comparison]]:
    return [(trial.executable, trial.comparison) for trial in trials if trial.executable]
