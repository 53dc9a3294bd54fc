"""What a compilation lets pass, at its limits."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.infer.accuracy import Comparison
from slipstream.infer.engines import Recipe
from slipstream.infer.goal import Goal

BYTES, FLOATS = Recipe(engine="native", precision="int8"), Recipe(engine="native")


def judged(noise, *, lost=None, labelled=1000):
    """Returns a comparison of one sample of signal 1, and answers of which some were lost."""
    found = Comparison(signal={"y": 1.0}, noise={"y": noise}, squares={"y": 0.0}, samples=1)
    if lost is not None:
        found.labelled, found.reference_right, found.right = labelled, labelled, labelled - lost
    return found


def test_as_much_noise_as_is_allowed_passes():
    assert Goal(snr_db=10.0).objection(BYTES, judged(0.1)) == ""
    said = Goal(snr_db=10.0).objection(BYTES, judged(0.1001))
    assert said == "10.0 dB, and 10 is the least"


def test_as_many_lost_answers_as_are_allowed_pass():
    assert Goal(budget=0.5).objection(BYTES, judged(0.9, lost=5)) == ""
    said = Goal(budget=0.5).objection(BYTES, judged(0.9, lost=6))
    assert said == "it loses 0.60 points of top-1, and 0.5 are allowed"


def test_float32_is_right_from_60_dB():  # noqa: N802
    assert Goal(snr_db=0.0).objection(FLOATS, judged(1e-6)) == ""
    said = Goal(snr_db=0.0).objection(FLOATS, judged(1.01e-6))
    assert said == "its float32 is wrong: 60.0 dB, and rounding leaves 60"


@pytest.mark.parametrize(("labelled", "tells"), [(199, False), (200, True)])
def test_labels_tell_where_one_of_them_is_no_more_than_the_budget(labelled, tells):
    goal = Goal(budget=0.5)
    assert (goal.objection(BYTES, judged(0.9, lost=0, labelled=labelled)) == "") == tells
    few = f" ({labelled} labels cannot tell so little), and a signal to noise of 20 dB or more"
    assert goal.allowed(labelled) == "0.5 percentage points of top-1 lost" + ("" if tells else few)


def test_a_doubt_about_other_samples_is_told_where_these_pass():
    found = Comparison()
    for noise in (0.05, 0.15) * 8:
        found.add({"y": np.array([1 + noise])}, {"y": np.array([1.0])})
    # Noise of 0.0125 on average; its mean errs by 0.01 / sqrt(15), of which 1.645 are added.
    sure = -10 * np.log10(0.0125 + 1.645 * 0.01 / np.sqrt(15))
    said = Goal(snr_db=18.5).objection(BYTES, found)
    assert said == f"19.0 dB (on other samples perhaps {sure:.1f}), and 18.5 is the least"
    assert Goal(snr_db=19.5).objection(BYTES, found) == "19.0 dB, and 19.5 is the least"
