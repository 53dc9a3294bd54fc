"""Signal to noise, and right answers."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.infer.accuracy import EXACT, Comparison


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
