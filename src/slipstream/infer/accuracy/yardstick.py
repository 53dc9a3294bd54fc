"""How a model's outputs are held against the reference's: which numbers of them belong together.

One figure over numbers of different sizes hides the small ones: where boxes in pixels and scores
between 0 and 1 are in one array, the scores could be all wrong and the figure still be fine. So
channels whose sizes differ by an order of magnitude are judged apart. And where an output has the
probabilities of classes, the class that is most probable counts as well.
"""

# NumPy is typed but for its element types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from slipstream.infer.graph.graph import Array

# Between the sizes of channels that are judged apart: 10 dB of power where they follow one another,
# as what was concatenated does, else an order of magnitude.
GAP, WIDE_GAP = 10.0**0.5, 10.0
LEAST_SIZE = 1e-3  # of probabilities: classes that never come up are as likely as each other
LEAST_CHANNELS, LEAST_SHARE = 2, 0.002  # of a group: fewer are taken along by their neighbours
MOST_CHANNELS = 4096  # more are positions
ENOUGH_NUMBERS = 8  # of each channel, to tell its size
ONE = 1e-3  # how far probabilities may be from one in all


@dataclass(frozen=True)
class Group:
    """Numbers of an output that are judged together.

    Args:
        title: for people: the output's name, with the channels where they are not all.
        axis: along which the channels lie.
        channels: their numbers; None for all.
    """

    title: str
    axis: int = 0
    channels: tuple[int, ...] | None = None

    def sum(self, powers: Array) -> float:
        """The sum over the group of an array of the output's shape."""
        if self.channels is not None:
            powers = powers.take(self.channels, self.axis)
        return float(powers.sum())


@dataclass(frozen=True)
class Yardstick:
    """What is measured of each output. Without anything it is one group of numbers.

    Args:
        groups: by output, those that are judged apart; none for answers that are integers.
        classes: by output, the axis along which the classes lie, of which the largest is the
            answer. Those that are integers are answers themselves and need not be here.
    """

    groups: Mapping[str, tuple[Group, ...]] = field(default_factory=dict[str, tuple[Group, ...]])
    classes: Mapping[str, int] = field(default_factory=dict[str, int])

    @staticmethod
    def of(outputs: Sequence[Mapping[str, Array]], *, is_classifier: bool = False) -> Yardstick:
        """The yardstick for a model that gave these outputs for some inputs, one or more.

        Args:
            outputs: results for each input, by name; the same shapes for all.
            is_classifier: the first output has a number for each class along its last axis.
        """
        groups: dict[str, tuple[Group, ...]] = {}
        classes: dict[str, int] = {}
        for number, name in enumerate(outputs[0]):
            arrays = [each[name] for each in outputs]
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

    def of_output(self, name: str) -> tuple[Group, ...]:
        """The groups of an output."""
        return self.groups.get(name, (Group(name),))

    def agreements(
        self, outputs: Mapping[str, Array], reference: Mapping[str, Array]
    ) -> Iterator[tuple[int, int]]:
        """How many answers each output has that answers, and how many are the reference's."""
        for name, right in reference.items():
            axis = self.classes.get(name)
            if axis is None and right.dtype.kind == "f":
                continue
            found = outputs[name]
            if found.shape != right.shape:
                yield 1, 0
            elif axis is None:
                yield right.size, int((found == right).sum())
            else:
                yield _agreement(found.argmax(axis), right.argmax(axis))


def _agreement(found: Array, right: Array) -> tuple[int, int]:
    """How many answers there are, and how many are the same. A row of classes is one answer, as a
    line of text is, in which what comes several times in a row counts once (CTC, Graves 2006)."""
    if right.ndim != 2:
        return right.size, int((found == right).sum())
    rows = zip(found, right, strict=True)
    return len(right), sum(np.array_equal(_merged(one), _merged(other)) for one, other in rows)


def _merged(row: Array) -> Array:
    return row[np.r_[True, row[1:] != row[:-1]]]


def _axis_of_classes(stacked: Array) -> int | None:
    """Along which axis of an output the numbers are probabilities, or their logarithms, that are
    one in all. The first axis of `stacked` counts inputs."""
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


# ---- channels of different sizes -----------------------------------------------------------------


def _groups(name: str, stacked: Array) -> tuple[Group, ...]:
    """The groups of an output, along the axis where sizes differ most."""
    ndim = stacked.ndim - 1
    found: list[tuple[float, tuple[Group, ...]]] = []
    for axis in {axis for axis in (1, ndim - 1) if 0 < axis < ndim}:
        count = stacked.shape[axis + 1]
        if 2 * LEAST_CHANNELS <= count <= MOST_CHANNELS and stacked.size >= ENOUGH_NUMBERS * count:
            sizes = _sizes(stacked, axis + 1)
            parts = _parts(sizes, GAP)
            if not all(map(_is_range, parts)):
                parts = _parts(sizes, WIDE_GAP)
            if len(parts) > 1:
                groups = (Group(f"{name}[{_spelled(part)}]", axis, part) for part in parts)
                found.append((max(sizes) / min(sizes[sizes > 0]), tuple(groups)))
    return max(found, key=lambda item: item[0])[1] if found else (Group(name),)


def _sizes(stacked: Array, axis: int) -> Array:
    """The root mean square of each channel; 0 of those that are nothing. What is between 0 and 1
    counts as LEAST_SIZE at least."""
    others = tuple(other for other in range(stacked.ndim) if other != axis)
    numbers = np.where(np.isfinite(stacked), stacked, 0.0)
    sizes = np.sqrt(np.square(numbers).mean(axis=others))
    are_shares = (numbers.min(axis=others) >= 0) & (numbers.max(axis=others) <= 1)
    return np.where(are_shares & (sizes > 0), np.maximum(sizes, LEAST_SIZE), sizes)


def _parts(sizes: Array, gap: float) -> list[tuple[int, ...]]:
    """Channels of like sizes, divided at gaps; those that are nothing belong to the smallest."""
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
    """`0:4` where the channels follow one another, else `0,2,...5`."""
    if _is_range(channels):
        return f"{channels[0]}:{channels[-1] + 1}"
    return f"{channels[0]},{channels[1]},...{channels[-1]}"
