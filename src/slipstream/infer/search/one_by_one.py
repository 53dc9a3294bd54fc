"""The search of a large model: candidates are prepared, judged and timed one after the other.

Each candidate has the weights in a form of its own, so that all candidates together take several
times the memory of the model. In the search of a large model, a candidate is closed before the next
candidate is prepared. Because only one candidate is in memory, candidates are not timed
alternately, and no mixed precision is searched for. Parts of the model are not timed, and the
speed-up by each rewrite is not measured.
"""

from __future__ import annotations

from slipstream.infer.engines import FLOATS
from slipstream.infer.search.autotuner import Autotuner
from slipstream.infer.search.byte_candidates import add_bytes
from slipstream.infer.search.judging import judge, reason_against_bytes
from slipstream.infer.search.trial import Trial

# Shares of the search time at which all candidates must be done (ENDS), and those in floating point
# if others follow (FLOATS_END). JUDGING is the share of a candidate's time in which it is judged.
# Chosen by hand, not measured.
ENDS, FLOATS_END, JUDGING = 0.85, 0.5, 0.5
BYTES = 6  # each candidate in int8 gets a sixth of the time left. Chosen by hand, not measured.


def try_each(tuner: Autotuner) -> None:
    """Try the candidates in floating point, and those in int8 if the user gave samples."""
    context = tuner.context
    tuner.note(
        f"the model has {context.constant_bytes / 1e9:.2f} GB of constants, so candidates were"
        " tried one at a time: no mixed precision, no parts, and the speed-up by each rewrite was"
        " not measured"
    )
    recipes = tuner.by_graph(*FLOATS)
    end = FLOATS_END if context.has_data else ENDS
    for number, (engine, recipe) in enumerate(recipes):
        trial = tuner.ready(engine, recipe, end=end)
        _finish(tuner, trial, _slot(tuner, end, len(recipes) - number))
    reason = reason_against_bytes(tuner) if context.has_data else ""
    if reason:
        tuner.note(f"the model stays in floating point: {reason}")
    elif context.has_data:
        add_bytes(tuner, lambda trial: _finish(tuner, trial, _slot(tuner, ENDS, BYTES)))


def _slot(tuner: Autotuner, end: float, count: int) -> float:
    """Return the share of the search time that the next of `count` candidates gets."""
    return max(end - tuner.share(), 0.0) / count


def _finish(tuner: Autotuner, trial: Trial, slot: float) -> None:
    """Judge a candidate, time it and close it."""
    tuner.add(trial)
    begin = tuner.share()
    if trial.executable is not None:
        judge(tuner, [trial], begin + JUDGING * slot)
    if trial.executable is not None:
        tuner.time([trial], begin + slot)
    trial.close()
