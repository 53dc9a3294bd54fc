"""What a compilation lets pass, at its limits."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.infer.accuracy.accuracy import ENOUGH, Comparison, Powers
from slipstream.infer.engines import Recipe
from slipstream.infer.engines.protocol import Part
from slipstream.infer.search.objective import Objective, has_bytes

BYTES, FLOATS = Recipe(engine="native", precision="int8"), Recipe(engine="native")
HALF = Recipe(engine="native", precision="bf16")


def judged(noise, *, samples=64, lost=None, labelled=1000):
    """Return a comparison of samples of signal 1, and answers, some of which were lost."""
    powers = Powers([1.0] * samples, [noise] * samples)
    found = Comparison(powers={"y": powers}, samples=samples)
    if lost is not None:
        found.labelled, found.reference_right, found.right = labelled, labelled, labelled - lost
        found.changed = lost
    return found


def answered(same, answers):
    found = judged(1e-4)
    found.answers, found.same = answers, same
    return found


def test_as_much_noise_as_is_allowed_passes():
    assert Objective(snr_db=10.0).objection(BYTES, judged(0.09999)) == ""
    said = Objective(snr_db=10.0).objection(BYTES, judged(0.1001))
    assert said == "10.0 dB, and 10 dB are required"


def test_as_many_lost_answers_as_are_allowed_pass():
    assert Objective(budget=0.5).objection(BYTES, judged(0.009, lost=5)) == ""
    said = Objective(budget=0.5).objection(BYTES, judged(0.009, lost=6))
    assert said == "it loses 0.60 points of top-1, and 0.5 are allowed"


def test_float32_is_right_from_60_dB():  # noqa: N802
    assert Objective(snr_db=0.0).objection(FLOATS, judged(1e-6)) == ""
    said = Objective(snr_db=0.0).objection(FLOATS, judged(1.01e-6))
    assert said == "its float32 is wrong: 60.0 dB, and rounding leaves 60 dB or more"


@pytest.mark.parametrize("recipe", [FLOATS, HALF])
def test_numbers_in_place_of_nan_are_told(recipe):
    said = Objective().objection(recipe, judged(float("nan")))
    assert "numbers where the model has NaN or infinity" in said


@pytest.mark.parametrize(("labelled", "tells"), [(500, False), (600, True)])
def test_labels_tell_alone_where_no_more_than_the_budget_can_be_lost_on_others(labelled, tells):
    """If no answer changes, 1.65 / labels may be lost: 0.33 points of 500, 0.27 of 600."""
    goal, found = Objective(budget=0.3), judged(0.9, lost=0, labelled=labelled)
    assert (goal.objection(BYTES, found) == "") == tells
    both = "" if tells else ", and a signal-to-noise ratio of 20 dB or more"
    assert goal.allowed(found) == "0.3 percentage points of top-1 lost" + both


def test_a_limit_in_decibels_holds_beside_labels():
    goal, found = Objective(snr_db=10.0), judged(0.2, lost=0)
    assert goal.objection(BYTES, found) == "7.0 dB, and 10 dB are required"
    assert goal.allowed(found).endswith("top-1 lost, and a signal-to-noise ratio of 10 dB or more")


@pytest.mark.parametrize(("same", "is_enough"), [(95, True), (94, False)])
def test_answers_have_to_be_the_models(same, is_enough):
    said = Objective().objection(BYTES, answered(same, 100))
    assert (said == "") == is_enough
    if not is_enough:
        assert said == "94.0 % of its answers equal the model's, and 95 % are required"
    assert Objective(agreement=90.0).objection(BYTES, answered(same, 100)) == ""
    words = "a signal-to-noise ratio of 20 dB or more, and 95 % of the answers the same"
    assert Objective().allowed(answered(same, 100)) == words


def test_with_labels_it_is_right_answers_that_count():
    found = answered(50, 100)
    found.labelled, found.right, found.reference_right = 100, 90, 90
    assert Objective().objection(BYTES, found) == ""


@pytest.mark.parametrize("samples", [1, ENOUGH - 1])
def test_bytes_need_samples_that_tell(samples):
    said = Objective().objection(BYTES, judged(1e-5, samples=samples))
    assert said == f"{samples} samples are too few to judge bytes; 8 are required"
    assert Objective().objection(BYTES, judged(1e-5, samples=ENOUGH)) == ""
    assert Objective().objection(FLOATS, judged(1e-9, samples=samples)) == ""


def test_numbers_of_16_bits_have_ten_decibels_to_spare_where_samples_are_few():
    assert Objective().objection(HALF, judged(0.00099, samples=4)) == ""
    said = Objective().objection(HALF, judged(0.0011, samples=4))
    assert said == "29.6 dB, and bf16 requires 30 dB"
    assert Objective().objection(HALF, judged(0.0011, samples=ENOUGH)) == ""


def test_a_doubt_about_other_samples_is_told_where_these_pass():
    found = Comparison()
    for noise in (0.05, 0.15) * 8:
        found.add({"y": np.array([1 + noise])}, {"y": np.array([1.0])})
    said = Objective(snr_db=18.5).objection(BYTES, found)
    assert (
        said == f"19.0 dB (on other samples perhaps {found.sure_db:.1f}), and 18.5 dB are required"
    )
    assert Objective(snr_db=19.5).objection(BYTES, found) == "19.0 dB, and 19.5 dB are required"


def test_samples_held_out_refute_what_is_not_as_good_on_them():
    goal = Objective()
    assert goal.refutes(BYTES, judged(1e-3), judged(9e-3, samples=16)) == ""
    said = goal.refutes(BYTES, judged(1e-3), judged(0.0101, samples=16))
    assert said == "20.0 dB, and 20 dB are required"
    said = goal.refutes(BYTES, judged(1e-3, lost=2), judged(1e-3, lost=8))
    assert said == "it loses 0.50 points of top-1, and 0.3 are allowed"


def test_hopeful_is_what_more_samples_may_show_to_be_good():
    goal = Objective()
    assert goal.is_hopeful(judged(0.0099, samples=8))
    assert not goal.is_hopeful(judged(0.0101, samples=8))
    assert goal.is_hopeful(judged(0.0101, samples=8, lost=1, labelled=8))


def test_parts_of_bytes_make_the_whole_one_of_bytes():
    assert [has_bytes(each) for each in (BYTES, FLOATS, HALF)] == [True, False, False]
    parts = (Part(end="m", recipe=FLOATS), Part(end="", recipe=BYTES))
    assert has_bytes(Recipe(engine="split", precision="fp32", parts=parts))
