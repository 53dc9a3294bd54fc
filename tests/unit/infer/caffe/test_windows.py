"""Caffe's layers with windows: pooling, response normalization."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

SIZES = [(7, 9), (8, 6), (5, 5)]


def has_empty_windows(kernel, stride, pad, size):
    """Tell whether the last window is empty; this is refused, see test_files."""
    return not pad and any(-(-(length - kernel) // stride) * stride >= length for length in size)


WINDOWS = [
    (window, size)
    for window in itertools.product((2, 3, 5), (1, 2, 3), (0, 1, 2))
    for size in SIZES
    if window[2] < window[0] and not has_empty_windows(*window, size)
]


def pooled_by_definition(x, kernel, stride, pad, pool):
    """Pool window by window, as Caffe's documentation describes it."""
    counts = []
    for size in x.shape[2:]:
        count = -(-(size + 2 * pad - kernel) // stride) + 1
        counts.append(count - 1 if pad and (count - 1) * stride >= size + pad else count)
    result = np.zeros((*x.shape[:2], *counts), np.float32)
    for place in np.ndindex(*counts):
        slices, area = [], 1
        for index, size in zip(place, x.shape[2:], strict=True):
            begin = index * stride - pad
            end = min(begin + kernel, size + pad)
            area *= end - begin
            slices.append(slice(max(begin, 0), min(end, size)))
        window = x[:, :, slices[0], slices[1]]
        result[(..., *place)] = window.max((2, 3)) if pool == "MAX" else window.sum((2, 3)) / area
    return result


@pytest.mark.parametrize("pool", ["MAX", "AVE"])
@pytest.mark.parametrize(("window", "size"), WINDOWS, ids=str)
def test_pooling_rounds_up(one, same, computed, window, pool, size):
    kernel, stride, pad = window
    options = f"kernel_size: {kernel} stride: {stride} pad: {pad}"
    net = one("Pooling", f"pooling_param {{ pool: {pool} {options} }}", shape=(2, 3, *size))
    computed(net, lambda x: pooled_by_definition(x, kernel, stride, pad, pool))
    if pool == "MAX" or not pad:  # OpenCV defines means with padding differently
        same(net)


@pytest.mark.parametrize("pool", ["MAX", "AVE"])
@pytest.mark.parametrize(
    "options",
    [
        "global_pooling: true",
        "kernel_h: 2 kernel_w: 3 stride_h: 2 stride_w: 1",
        "kernel_size: 3 stride: 2 ceil_mode: false",
    ],
)
def test_other_pooling(one, same, pool, options):
    same(one("Pooling", f"pooling_param {{ pool: {pool} {options} }}"))


@pytest.mark.parametrize("options", ["alpha: 0.5", "local_size: 7 alpha: 0.001 beta: 1.5"])
def test_lrn_beside_opencv(one, same, options):
    same(one("LRN", f"lrn_param {{ {options} }}"))
    same(one("LRN", f"lrn_param {{ {options} norm_region: WITHIN_CHANNEL }}"))


@pytest.mark.parametrize("options", ["", "local_size: 3 alpha: 0.5 beta: 0.6 k: 2"])
@pytest.mark.parametrize("region", ["ACROSS_CHANNELS", "WITHIN_CHANNEL"])
def test_lrn_of_defaults_and_with_k_that_opencv_leaves_out(one, computed, options, region):
    size, alpha, beta, k = (3, 0.5, 0.6, 2) if options else (5, 1, 0.75, 1)
    axes = (1,) if region == "ACROSS_CHANNELS" else (2, 3)

    def right(x):
        padded = np.pad(
            x**2, [(0, 0), *[(size // 2,) * 2 if at in axes else (0, 0) for at in (1, 2, 3)]]
        )
        windows = np.lib.stride_tricks.sliding_window_view(padded, (size,) * len(axes), axes)
        mean = windows.mean(tuple(range(4, 4 + len(axes))))
        return x / ((k if len(axes) == 1 else 1) + alpha * mean) ** beta

    computed(one("LRN", f"lrn_param {{ {options} norm_region: {region} }}"), right)
