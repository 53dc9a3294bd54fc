"""Manifests whose fields have the wrong type or form, and boxes that do not make up a tensor."""

from __future__ import annotations

import itertools
import json
import random
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from slipstream.errors import MismatchError
from slipstream.train.checkpoint import Checkpointer, CheckpointError
from slipstream.train.checkpoint.division import is_tiled
from slipstream.train.checkpoint.manifest import SavedSlice, SavedTensor
from slipstream.train.checkpoint.merging import RankNote, merge_notes


def changed_manifest(folder: Path, change) -> Checkpointer:
    """Save a checkpoint, and change the fields of its manifest, with a checksum that fits."""
    checkpointer = Checkpointer(folder)
    checkpointer.save(1, {"x": torch.arange(16.0).view(4, 4), "n": 3})
    checkpointer.wait()
    path = folder / "step-00000001" / "manifest.json"
    fields = json.loads(path.read_text())["manifest"]
    change(fields)
    text = json.dumps(fields).encode()
    path.write_bytes(b'{"crc32": "%08x", "manifest": %s}\n' % (zlib.crc32(text), text))
    return checkpointer


def cut(fields: dict, *boxes: tuple[list[int], list[int]]) -> None:
    """Give the tensor other boxes."""
    (box,) = fields["tensors"]["x"]["slices"]
    fields["tensors"]["x"]["slices"] = [
        box | {"offsets": offsets, "shape": shape} for offsets, shape in boxes
    ]


WRONG = {
    "key": lambda fields: fields["tensors"]["x"]["slices"][0].update(key=7),
    "save": lambda fields: fields.update(save=3),
    "form of save": lambda fields: fields.update(save="../x"),
    "num_ranks": lambda fields: fields.update(num_ranks=0),
    "checksum": lambda fields: fields["files"][0].update(checksums=[5]),
    "array": lambda fields: fields["state"]["x"].update(array=1),
    "overlap": lambda fields: cut(fields, ([0, 0], [2, 4]), ([1, 0], [2, 4])),
    "twice": lambda fields: cut(fields, ([0, 0], [2, 4]), ([0, 0], [2, 4])),
    "crossed": lambda fields: cut(fields, ([0, 0], [4, 2]), ([2, 0], [2, 4])),
}


@pytest.mark.parametrize("what", WRONG)
def test_fields_that_no_save_writes_are_refused(tmp_path, what) -> None:
    checkpointer = changed_manifest(tmp_path, WRONG[what])
    assert checkpointer.newest() is None
    with pytest.raises(CheckpointError, match="fields that no save writes"):
        checkpointer.restore({"x": torch.zeros(4, 4)})


def test_boxes_that_cut_two_dimensions_are_allowed(tmp_path) -> None:
    quarters = [([row, column], [2, 2]) for row in (0, 2) for column in (0, 2)]
    assert changed_manifest(tmp_path, lambda fields: cut(fields, *quarters)).newest() == 1


def test_boxes_are_tiles_exactly_if_each_element_is_in_one(tmp_path) -> None:
    """Compare with the counting of all elements."""
    draw = random.Random(1)
    shape = (3, 1, 4)
    spans = [[(a, b) for a in range(n) for b in range(a, n + 1)] for n in shape]
    outcomes = set()
    for _ in range(3000):
        boxes = random_tiles(draw, shape)
        if draw.random() < 0.5:
            boxes[draw.randrange(len(boxes))] = tuple(draw.choice(each) for each in spans)
        counts = np.zeros(shape, int)
        for box in boxes:
            counts[tuple(slice(*span) for span in box)] += 1
        expected = bool((counts == 1).all())
        outcomes.add(expected)
        as_lengths = [([a for a, _ in box], [b - a for a, b in box]) for box in boxes]
        assert is_tiled(shape, as_lengths) == expected, boxes
    assert outcomes == {True, False}


def random_tiles(draw: random.Random, shape: tuple[int, ...]) -> list:
    """Return spans of boxes that a random division of each dimension makes."""
    spans = []
    for length in shape:
        ends = sorted({0, length, *(draw.randrange(length + 1) for _ in range(2))})
        spans.append(list(itertools.pairwise(ends)))
    return list(itertools.product(*spans))


def test_ten_thousand_boxes_are_checked(tmp_path) -> None:
    boxes = [((row, column), (1, 1)) for row in range(100) for column in range(100)]
    assert is_tiled((100, 100), boxes)
    boxes[7] = boxes[8]
    assert not is_tiled((100, 100), boxes)


def test_tensors_without_elements_and_numbers_are_tiled() -> None:
    assert is_tiled((), [((), ())])
    assert not is_tiled((), [])
    assert is_tiled((0, 3), [])
    assert is_tiled((0, 3), [((0, 0), (0, 3))])


def test_boxes_along_more_dimensions_than_any_mesh_has_are_refused() -> None:
    """The corners of a box would be counted for hours."""
    whole = ((0,) * 64, (1,) * 64)
    assert not is_tiled((2,) * 64, [whole])


def test_ranks_whose_parts_overlap_get_an_error() -> None:
    def note(*offsets: int) -> RankNote:
        places = (SavedSlice(file=0, key="x", begin=0, offsets=(o,), shape=(2,)) for o in offsets)
        tensor = SavedTensor(dtype="F32", shape=(4,), slices=tuple(places))
        return RankNote(state={"x": {"$tensor": "x", "array": False}}, tensors={"x": tensor})

    merge_notes([note(0), note(2)], step=1, time=0.0, save="aa-1")
    with pytest.raises(MismatchError, match=r"4 of 4 elements .* which leave gaps or overlap"):
        merge_notes([note(0), note(1)], step=1, time=0.0, save="aa-1")
