"""Signal to noise, and right answers."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.infer.accuracy import ENOUGH, EXACT, Comparison


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
        noise = 0.1 * np.sqrt(1.5 if number % 2 else 0.5)
        uneven.add({"y": np.float32([1 + noise])}, {"y": np.float32([1])})
    assert even.sure_db == pytest.approx(even.snr_db, abs=1e-3)
    assert uneven.snr_db == pytest.approx(20, abs=1e-3)
    # Half of the mean is the standard deviation, so the mean of 16 errs by an eighth of itself.
    error = 0.5 / np.sqrt(15)
    assert uneven.sure_db == pytest.approx(20 - 10 * np.log10(1 + 1.645 * error), abs=1e-3)


def test_few_samples_tell_nothing_of_others():
    found = Comparison()
    found.add({"y": np.float32([1.1])}, {"y": np.float32([1])})
    found.add({"y": np.float32([1.01])}, {"y": np.float32([1])})
    assert found.sure_db == found.snr_db


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


@pytest.mark.parametrize(("samples", "is_less"), [(7, False), (8, True)])
def test_eight_samples_tell_how_noise_differs(samples, is_less):
    assert ENOUGH == 8
    found = Comparison()
    for number in range(samples):
        found.add({"y": np.array([1.1 if number else 1.2])}, {"y": np.array([1.0])})
    assert found.samples == samples
    assert (found.sure_db < found.snr_db) == is_less


def test_the_doubt_is_of_the_worst_output_and_infinite_noise_has_none():
    found = Comparison()
    for number in range(8):
        right = {"a": np.array([1.0]), "b": np.array([1.0])}
        found.add({"a": np.array([1.1]), "b": np.array([1.05 + 0.1 * (number % 2)])}, right)
    assert found.snr_db == pytest.approx(10 * np.log10(1 / 0.0125))
    error = 0.01 / np.sqrt(7)
    assert found.sure_db == pytest.approx(-10 * np.log10(0.0125 + 1.645 * error))
    found.add({"a": np.array([np.inf]), "b": np.array([1.0])}, right)
    assert found.sure_db == found.snr_db == -EXACT


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
