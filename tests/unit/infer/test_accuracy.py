"""Signal to noise, and right answers."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.infer.accuracy.accuracy import ENOUGH, EXACT, Comparison, Powers


def compared(found, right, labels=None):
    comparison = Comparison()
    comparison.add({"y": np.asarray(found)}, {"y": np.asarray(right)}, labels)
    return comparison


def test_a_tenth_of_noise_is_twenty_decibels():
    assert compared([1.1, -0.9], [1.0, -1.0]).snr_db == pytest.approx(20)


def test_what_is_equal_has_the_most():
    assert compared([1.0, np.nan, np.inf], [1.0, np.nan, np.inf]).snr_db == EXACT


@pytest.mark.parametrize("found", [[np.nan, 1.0], [np.inf, 1.0], [1.0]])
def test_numbers_that_are_none_and_other_shapes_have_the_least(found):
    assert compared(found, [1.0, 1.0]).snr_db == -EXACT


def test_the_worst_output_counts():
    comparison = Comparison()
    right = {"a": np.ones(4), "b": np.full(4, 1000.0)}
    comparison.add({"a": np.full(4, 1.1), "b": right["b"]}, right)
    assert comparison.snr_db == pytest.approx(20)


def test_samples_are_summed():
    comparison = Comparison()
    comparison.add({"y": np.ones(3)}, {"y": np.ones(3)})
    comparison.add({"y": np.full(3, 1.1)}, {"y": np.ones(3)})
    assert comparison.snr_db == pytest.approx(10 * np.log10(2 / 0.01))


def test_noise_that_differs_leaves_less_for_sure():
    even, uneven = Comparison(), Comparison()
    for number in range(16):
        even.add({"y": np.float32([1.1])}, {"y": np.float32([1])})
        noise = 0.1 * np.sqrt(1.2 if number % 2 else 0.8)
        uneven.add({"y": np.float32([1 + noise])}, {"y": np.float32([1])})
    assert even.sure_db == pytest.approx(even.snr_db, abs=1e-3)
    assert uneven.snr_db == pytest.approx(20, abs=1e-3)
    # The standard deviation is 0.2 of the mean, so the mean of 16 errs by a twentieth: Student's.
    student = 1 + 1.753 * 0.2 * np.sqrt(16 / 15) / 4
    # Of logarithms it is 0.209, and Cox's bound is the greater.
    variance = np.log(1.5) ** 2 / 4 * 16 / 15
    cox = np.exp(1.753 * np.sqrt(variance / 16 + variance**2 / 30))
    assert uneven.sure_db == pytest.approx(20 - 10 * np.log10(max(student, cox)), abs=1e-3)


def test_few_samples_tell_nothing_of_others():
    found = Comparison()
    for _ in range(ENOUGH - 1):
        found.add({"y": np.float32([1.1])}, {"y": np.float32([1])})
    assert (found.snr_db > 19, found.sure_db) == (True, -EXACT)
    found.add({"y": np.float32([1.1])}, {"y": np.float32([1])})
    assert found.sure_db == pytest.approx(20, abs=1e-3)


NOISES = {
    "alike": lambda random, count: random.lognormal(-0.045, 0.3, count),
    "some more": lambda random, count: random.lognormal(-0.245, 0.7, count),
    "far apart": lambda random, count: random.lognormal(-0.5, 1.0, count),
    "exponential": lambda random, count: random.exponential(1.0, count),
}


@pytest.mark.parametrize("loudness", [0.0, 0.7])
@pytest.mark.parametrize("count", [8, 16, 64])
@pytest.mark.parametrize("kind", NOISES)
def test_other_samples_have_no_more_noise_than_is_sure_in_19_of_20_draws(kind, count, loudness):
    """Samples have a signal of 1, or of different sizes, and noise of 1 on average.

    It is true in 18 of 20 draws if there are few samples that differ much.
    """
    random = np.random.default_rng(count)
    held = []
    for _ in range(400):
        signal = random.lognormal(0, loudness, count)
        powers = Powers(signal.tolist(), (signal * NOISES[kind](random, count)).tolist())
        held.append(powers.sure_db <= 0)
    assert np.mean(held) >= (0.87 if kind == "far apart" else 0.9)


def test_a_bound_is_no_wider_than_it_has_to_be():
    random = np.random.default_rng(5)
    signal, noise = np.ones(64), NOISES["some more"](random, 64)
    powers = Powers(signal.tolist(), noise.tolist())
    assert 0.3 < powers.db - powers.sure_db < 1.2


def test_integers_compare_without_wrapping():
    assert compared(np.uint8([0]), np.uint8([255])).snr_db == pytest.approx(0)


def test_right_answers_are_counted_per_row():
    right = np.eye(4)
    found = np.eye(4)[[0, 1, 2, 0]]
    comparison = compared(found, right, np.arange(4))
    assert (comparison.labelled, comparison.top1_loss) == (4, pytest.approx(25))


def test_without_labels_there_is_no_loss():
    assert compared([1.0], [1.0]).top1_loss is None


def test_decibels_are_from_minus_200_to_200():
    assert EXACT == 200
    assert compared([0.0, 1.0], [0.0, 1.0]).snr_db == 200
    assert compared([1e30], [1.0]).snr_db == -200
    assert compared([1e9 + 1e-5], [1e9]).snr_db == 200
    assert compared([1.0], [0.0]).snr_db == -200
    assert compared([3.0], [1.0]).snr_db == pytest.approx(-10 * np.log10(4))


def test_numbers_that_are_none_in_both_are_neither_signal_nor_noise():
    right = [1.0, np.nan, np.inf, -np.inf]
    assert compared([1.1, np.nan, np.inf, -np.inf], right).snr_db == pytest.approx(20)
    assert compared([1.0, np.nan, np.inf, np.inf], right).snr_db == -EXACT
    assert compared([1.0, 0.0, np.inf, -np.inf], right).snr_db == -EXACT


def test_the_doubt_is_of_the_worst_output_and_infinite_noise_has_none():
    found = Comparison()
    for number in range(8):
        right = {"a": np.array([1.0]), "b": np.array([1.0])}
        found.add({"a": np.array([1.1]), "b": np.array([1.05 + 0.1 * (number % 2)])}, right)
    assert found.snr_db == pytest.approx(10 * np.log10(1 / 0.0125))
    assert found.sure_db == found.powers["b"].sure_db < found.powers["a"].sure_db
    found.add({"a": np.array([np.inf]), "b": np.array([1.0])}, right)
    assert found.sure_db == found.snr_db == -EXACT


def test_two_comparisons_together_say_what_one_of_all_samples_says():
    random = np.random.default_rng(0)
    one, two, both = Comparison(), Comparison(), Comparison()
    for number in range(20):
        right = {"y": random.standard_normal((4, 3))}
        found = {"y": right["y"] + 0.1 * random.standard_normal((4, 3))}
        labels = random.integers(0, 3, 4)
        for each in (one if number < 9 else two, both):
            each.add(found, right, labels)
    assert one.together(two) == both
    assert (one.samples, two.samples) == (9, 11)


def test_what_may_be_lost_of_other_answers_grows_with_those_that_changed():
    found = Comparison(labelled=1000, right=900, reference_right=900, changed=0)
    assert found.most_loss == pytest.approx(100 * 1.646 / 1000, rel=1e-3)
    found.changed = 24
    assert found.most_loss == pytest.approx(100 * 1.646 * 5 / 1000, rel=1e-3)
    found.right = 896
    assert found.most_loss == pytest.approx(0.4 + 100 * 1.646 * 5 / 1000, rel=1e-3)


def test_answers_are_those_of_the_first_output_sample_by_sample():
    found, right = Comparison(), {"a": np.eye(3), "b": np.ones((3, 3))}
    wrong = {"a": np.eye(3)[[1, 2, 0]], "b": np.ones((3, 3))}
    found.add(right, right, np.arange(3))
    found.add(wrong, right, np.arange(3))
    found.add(right, wrong, np.arange(3))
    assert (found.labelled, found.right, found.reference_right) == (9, 6, 6)
    assert found.top1_loss == 0.0
    found.add(wrong, right, np.arange(3))
    assert found.top1_loss == pytest.approx(25)
    assert (found.top1, found.reference_top1) == (50, 75)
    assert found.classes == {0, 1, 2}


def test_samples_that_are_all_but_exact_do_not_widen_the_bound():
    """Most probabilities of a classifier are 0 or 1 and have hardly any noise."""
    random = np.random.default_rng(3)
    noise = np.where(random.random(64) < 0.7, 10.0 ** random.uniform(-20, -9, 64), 1e-3)
    powers = Powers([1.0] * 64, noise.tolist())
    assert 1 < powers.db - powers.sure_db < 6
