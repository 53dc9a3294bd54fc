"""Large models: candidates are made ready, judged and timed one after the other.

Each of them has the weights in a form of its own, so that all together take several times the
memory of the model. Here none is open while another one is: they are not timed by turns, no parts
of the model are timed, no mixtures are looked for, and what each rewrite gained is not measured.
"""

from __future__ import annotations

from slipstream.infer.engines import FLOATS
from slipstream.infer.search.autotuner import Autotuner
from slipstream.infer.search.byte_candidates import add_bytes
from slipstream.infer.search.judging import against_bytes, judge
from slipstream.infer.search.trial import Trial

ENDS = 0.85  # share of the time until which candidates are tried
FLOATS_END = 0.5  # the same of those in floating point, where there are others
JUDGING = 0.5  # share of a candidate's time in which it is judged
BYTES = 6  # candidates of bytes among which their time is divided


def try_each(tuner: Autotuner, *, with_bytes: bool) -> None:
    """Try candidates of floating point, and where there are samples those of bytes."""
    tuner.note(
        f"the model has {tuner.weights_bytes / 1e9:.2f} GB of constants, so candidates were tried"
        " one at a time: no mixtures, no parts, and what rewrites gained was not measured"
    )
    recipes = tuner.by_graph(*FLOATS)
    end = FLOATS_END if with_bytes else ENDS
    for number, (engine, recipe) in enumerate(recipes):
        trial = tuner.ready(engine, recipe, end=end)
        _finish(tuner, trial, _slot(tuner, end, len(recipes) - number))
    reason = against_bytes(tuner) if with_bytes else ""
    if reason:
        tuner.note(f"it stays in floating point: {reason}")
    elif with_bytes:
        add_bytes(tuner, lambda trial: _finish(tuner, trial, _slot(tuner, ENDS, BYTES)))


def _slot(tuner: Autotuner, end: float, count: int) -> float:
    """Return the share of the time for the next of `count` candidates."""
    return max(end - tuner.share(), 0.0) / count


def _finish(tuner: Autotuner, trial: Trial, slot: float) -> None:
    """Judge and time a candidate, and close it."""
    tuner.add(trial)
    begin = tuner.share()
    if trial.executable is not None:
        judge(tuner, [trial], begin + JUDGING * slot)
    if trial.executable is not None:
        tuner.time([trial], begin + slot)
    trial.close()
