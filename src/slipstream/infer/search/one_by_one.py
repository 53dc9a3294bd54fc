"""Large models: candidates are made ready, judged and timed one after the other.

Each of them has the weights in a form of its own, so that all together take several times the
memory of the model. Here none is open while another one is: they are not timed by turns, no parts
of the model are timed, no mixtures are looked for, and what each rewrite gained is not measured.
"""

from __future__ import annotations

from slipstream.infer.engines import FLOATS
from slipstream.infer.search.byte_candidates import add_bytes
from slipstream.infer.search.contest import Contest
from slipstream.infer.search.judging import against_bytes, judge
from slipstream.infer.search.trial import Trial

ENDS = 0.85  # share of the time until which candidates are tried
FLOATS_END = 0.5  # the same of those in floating point, where there are others
JUDGING = 0.5  # share of a candidate's time in which it is judged
BYTES = 6  # candidates of bytes among which their time is divided


def try_each(contest: Contest, *, with_bytes: bool) -> None:
    """Try candidates of floating point, and where there are samples those of bytes."""
    contest.notes.append(
        f"the model has {contest.weights_bytes / 1e9:.2f} GB of constants, so candidates were tried"
        " one at a time: no mixtures, no parts, and what rewrites gained was not measured"
    )
    recipes = contest.by_graph(*FLOATS)
    end = FLOATS_END if with_bytes else ENDS
    for number, (engine, recipe) in enumerate(recipes):
        trial = contest.ready(engine, recipe, end=end)
        _finish(contest, trial, _slot(contest, end, len(recipes) - number))
    reason = against_bytes(contest) if with_bytes else ""
    if reason:
        contest.notes.append(f"it stays in floating point: {reason}")
    elif with_bytes:
        add_bytes(contest, lambda trial: _finish(contest, trial, _slot(contest, ENDS, BYTES)))


def _slot(contest: Contest, end: float, count: int) -> float:
    """The share of the time that the next of so many candidates has."""
    return max(end - contest.share(), 0.0) / count


def _finish(contest: Contest, trial: Trial, slot: float) -> None:
    """Judge and time a candidate, and close it."""
    contest.trials.append(trial)
    begin = contest.share()
    if trial.executable is not None:
        judge(contest, [trial], begin + JUDGING * slot)
    if trial.executable is not None:
        contest.time([trial], begin + slot)
    trial.close()
