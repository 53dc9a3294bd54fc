"""The yardstick: groups of an output's channels, each with a signal-to-noise ratio of its own.

One ratio over numbers of different magnitudes hides errors of the small numbers. If boxes in pixels
and scores between 0 and 1 are in one array, the ratio can be good although all scores are wrong.
Channels whose magnitudes differ by the factor `GAP` or more are therefore compared separately. If
an output has the probabilities of classes, the most probable class is compared as well.
"""

# NumPy's stubs leave the element types of arrays open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from slipstream.infer.graph.graph import Array

# Least ratio of the magnitudes of two groups: GAP (10 dB of power) if each group has consecutive
# channels, as after Concat, else WIDE_GAP (20 dB). Chosen by hand, not measured.
GAP, WIDE_GAP = 10.0**0.5, 10.0
# Lower limit for the magnitude of channels whose numbers are between 0 and 1, so that classes that
# never occur are not divided into groups. Chosen by hand, not measured.
LEAST_SIZE = 1e-3
# Least number of channels in a group, and its least share of all channels; a smaller group joins a
# neighbour. Chosen by hand, not measured.
LEAST_CHANNELS, LEAST_SHARE = 2, 0.002
# Greatest number of channels; a longer axis is taken for positions. Chosen by hand, not measured.
MOST_CHANNELS = 4096
# Least count of numbers from which the magnitude of a channel is computed. Chosen by hand, not
# measured.
ENOUGH_NUMBERS = 8
# Greatest difference of a sum of probabilities from 1. Chosen by hand, not measured.
ONE = 1e-3


@dataclass(frozen=True)
class ChannelGroup:
    """Channels of an output that are compared together.

    Args:
        title: Name of the output, followed by the channels unless the group has all of them.
        axis: Axis of the channels (default 0).
        channels: Indices of the channels; None (the default) for all.
    """

    title: str
    axis: int = 0
    channels: tuple[int, ...] | None = None

    def sum(self, powers: Array) -> float:
        """Return the sum of the group's elements of an array that has the output's shape."""
        if self.channels is not None:
            powers = powers.take(self.channels, self.axis)
        return float(powers.sum())


@dataclass(frozen=True)
class Yardstick:
    """The groups of channels of each output, and the axis of its classes, if it has classes.

    By default an output is one group.

    Outputs of integers have no groups and no classes: each integer either equals the reference's
    integer or does not.

    Args:
        groups: Groups of channels that are compared separately, by the name of their output. The
            channels of an output that is missing here are one group.
        classes: Axis of the classes, by the name of the output, for outputs with a score for each
            class. The predicted class is the class with the highest score.
    """

    groups: Mapping[str, tuple[ChannelGroup, ...]] = field(
        default_factory=dict[str, tuple[ChannelGroup, ...]]
    )
    classes: Mapping[str, int] = field(default_factory=dict[str, int])

    @staticmethod
    def of(outputs: Sequence[Mapping[str, Array]], *, is_classifier: bool = False) -> Yardstick:
        """Return the yardstick for a model, from its outputs for one or more inputs.

        Args:
            outputs: Outputs for each input, as arrays by output name. An output whose shape varies
                is one group.
            is_classifier: Whether the first output has a number for each class along its last
                axis (default False).
        """
        groups: dict[str, tuple[ChannelGroup, ...]] = {}
        classes: dict[str, int] = {}
        for number, name in enumerate(outputs[0]):
            arrays = [arrays_of[name] for arrays_of in outputs]
            if arrays[0].dtype.kind != "f":
                groups[name] = ()
                continue
            if any(array.shape != arrays[0].shape for array in arrays):
                continue
            stacked = np.stack(arrays).astype(np.float64)
            axis = _axis_of_classes(stacked)
            if axis is not None or (is_classifier and number == 0 and arrays[0].ndim > 1):
                classes[name] = arrays[0].ndim - 1 if axis is None else axis
            else:
                groups[name] = _groups(name, stacked)
        return Yardstick(groups, classes)

    def of_output(self, name: str) -> tuple[ChannelGroup, ...]:
        """Return the groups of an output."""
        return self.groups.get(name, (ChannelGroup(name),))

    def agreements(
        self, outputs: Mapping[str, Array], reference: Mapping[str, Array]
    ) -> Iterator[tuple[int, int]]:
        """Yield a pair of numbers for each output that has classes or integers.

        The first number counts the predicted classes or the integers. The second number counts
        those that equal the reference's.
        """
        for name, expected in reference.items():
            axis = self.classes.get(name)
            if axis is None and expected.dtype.kind == "f":
                continue
            output = outputs[name]
            if output.shape != expected.shape:
                yield 1, 0
            elif axis is None:
                yield expected.size, int((output == expected).sum())
            else:
                yield _agreement(output.argmax(axis), expected.argmax(axis))


def _agreement(answers: Array, expected: Array) -> tuple[int, int]:
    """Return a pair: the number of predicted classes, and the number that equal `expected`.

    A row of a two-dimensional array is a sequence of classes, such as a line of text. The whole
    sequence counts as one prediction, and repetitions of a class in it are merged (CTC, Graves
    2006).
    """
    if expected.ndim != 2:
        return expected.size, int((answers == expected).sum())
    rows = zip(answers, expected, strict=True)
    return len(expected), sum(np.array_equal(_merged(one), _merged(other)) for one, other in rows)


def _merged(row: Array) -> Array:
    """Return the elements of a row that differ from the element before them."""
    return row[np.r_[True, row[1:] != row[:-1]]]


def _axis_of_classes(stacked: Array) -> int | None:
    """Return the axis along which the numbers or their exponentials sum to 1, or None.

    Args:
        stacked: Outputs for several inputs, stacked along a new first axis.
    """
    ndim = stacked.ndim - 1
    axes = {2: (1,), 3: (2, 1), 4: (1,)}.get(ndim, ())
    for axis in axes:
        if stacked.shape[axis + 1] < 2 or not np.isfinite(stacked).all():
            continue
        if stacked.min() >= -ONE and _are_one(stacked.sum(axis + 1)):
            return axis
        if stacked.max() <= ONE and _are_one(np.exp(stacked).sum(axis + 1)):
            return axis
    return None


def _are_one(sums: Array) -> bool:
    return bool(np.abs(sums - 1).max() <= ONE)


# ---- channels of different magnitudes ------------------------------------------------------------


def _groups(name: str, stacked: Array) -> tuple[ChannelGroup, ...]:
    """Return the groups of an output along the axis on which magnitudes differ most."""
    ndim = stacked.ndim - 1
    divisions: list[tuple[float, tuple[ChannelGroup, ...]]] = []
    for axis in {axis for axis in (1, ndim - 1) if 0 < axis < ndim}:
        count = stacked.shape[axis + 1]
        if 2 * LEAST_CHANNELS <= count <= MOST_CHANNELS and stacked.size >= ENOUGH_NUMBERS * count:
            sizes = _sizes(stacked, axis + 1)
            parts = _parts(sizes, GAP)
            if not all(map(_is_range, parts)):
                parts = _parts(sizes, WIDE_GAP)
            if len(parts) > 1:
                groups = (ChannelGroup(f"{name}[{_spelled(part)}]", axis, part) for part in parts)
                divisions.append((max(sizes) / min(sizes[sizes > 0]), tuple(groups)))
    return max(divisions, key=lambda item: item[0])[1] if divisions else (ChannelGroup(name),)


def _sizes(stacked: Array, axis: int) -> Array:
    """Return the root mean square of each channel; 0 if all its numbers are 0.

    If a channel's numbers are between 0 and 1 and not all 0, the result is at least LEAST_SIZE.
    """
    others = tuple(other for other in range(stacked.ndim) if other != axis)
    numbers = np.where(np.isfinite(stacked), stacked, 0.0)
    sizes = np.sqrt(np.square(numbers).mean(axis=others))
    are_shares = (numbers.min(axis=others) >= 0) & (numbers.max(axis=others) <= 1)
    return np.where(are_shares & (sizes > 0), np.maximum(sizes, LEAST_SIZE), sizes)


def _parts(sizes: Array, gap: float) -> list[tuple[int, ...]]:
    """Return groups of channels of similar magnitude.

    The channels are sorted by magnitude. A group ends where the next magnitude is at least `gap`
    times as large. There must be at least LEAST_CHANNELS channels, and LEAST_SHARE of all channels,
    in the group and after it. Channels of magnitude 0 belong to the
    group of least magnitude.
    """
    order = np.argsort(sizes, kind="stable")
    least = max(LEAST_CHANNELS, int(np.ceil(LEAST_SHARE * len(sizes))))
    parts: list[list[int]] = [[]]
    for at, channel in enumerate(order.tolist()):
        before = sizes[order[at - 1]] if at else 0.0
        is_gap = before > 0 and sizes[channel] >= gap * before
        if is_gap and len(parts[-1]) >= least and len(order) - at >= least:
            parts.append([])
        parts[-1].append(channel)
    return sorted(tuple(sorted(part)) for part in parts)


def _is_range(channels: Sequence[int]) -> bool:
    return channels[-1] - channels[0] + 1 == len(channels)


def _spelled(channels: Sequence[int]) -> str:
    """Return the channels as "0:4" if they are consecutive, else as "0,2,...5"."""
    if _is_range(channels):
        return f"{channels[0]}:{channels[-1] + 1}"
    return f"{channels[0]},{channels[1]},...{channels[-1]}"
