"""What surrounds the pretrained models: reading files, decoding answers, errors."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

pytest.importorskip("torch")

from slipstream.bench.pretrained import file_types, ocr, sentences, voice, writing
from slipstream.bench.pretrained.packages import package_file
from slipstream.bench.pretrained.zoo import PRETRAINED, chosen
from slipstream.errors import UsageError


def test_a_package_that_is_not_there_is_named_with_what_installs_it():
    with pytest.raises(UsageError, match=r"no_such_package is not installed; pip install"):
        package_file("no_such_package", "model.onnx")
    with pytest.raises(UsageError, match=r"numpy in .* has no model.onnx"):
        package_file("numpy", "model.onnx")


def test_models_are_chosen_by_name():
    assert [model.name for model in chosen(["voice", "sentences"])] == ["voice", "sentences"]
    assert [model.name for model in chosen([])] == list(PRETRAINED)
    with pytest.raises(UsageError, match=r"called vioce; allowed: .*voice"):
        chosen(["vioce"])


def test_classes_of_places_become_text():
    """A class that is repeated is one character, unless class 0 stands between."""
    places = np.array([1, 1, 0, 1, 2, 0, 3, 2, 2, 0])
    assert ocr.text_of(np.eye(4)[places][None], ["", "a", "b", " "]) == "aab b"


def test_text_becomes_boxes():
    probabilities = np.zeros((1, 1, 60, 80), np.float32)
    probabilities[0, 0, 10:20, 5:65] = 0.9
    probabilities[0, 0, 40, 40] = 0.9  # a speck
    (box,) = ocr.boxes_of(probabilities)
    more = 1.6 * 600 / 140
    np.testing.assert_allclose(box, [5 - more, 10 - more, 65 + more, 20 + more])


def test_files_are_seen_by_both_their_ends(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"\n  begin" + b"x" * 5000 + b"end \n")
    found = file_types.features(path)[0]
    assert (found.shape, found.dtype) == ((2048,), np.int32)
    assert bytes(found[:6].astype(np.uint8)) == b"beginx"
    assert bytes(found[-4:].astype(np.uint8)) == b"xend"
    path.write_bytes(b"short")
    assert file_types.features(path)[0, 5] == file_types.PADDING


def test_words_become_the_longest_pieces_of_the_vocabulary():
    words = ("[CLS]", "[SEP]", "[UNK]", "un", "##known", "##k", "word", "!")
    vocabulary = {word: number for number, word in enumerate(words)}
    assert sentences.tokens_of("Unknown word! xyz", vocabulary) == [0, 3, 4, 6, 7, 2, 1]
    assert len(sentences.tokens_of("word " * 500, vocabulary)) == sentences.LENGTH


def test_weights_are_read_from_safetensors(tmp_path):
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
    header = {
        "__metadata__": {"format": "pt"},
        "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [8, 32]},
        "ids": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]},
    }
    text = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8) + numbers.tobytes())
    found = sentences.read_weights(path)
    assert list(found) == ["w"]
    np.testing.assert_array_equal(found["w"], numbers)


def test_moments_begin_with_the_end_of_the_one_before():
    found = voice.windows(np.arange(1, 1025, dtype=np.float32))
    assert found.shape == (2, 576)
    assert (found[0, 63], found[0, 64], found[1, 0]) == (0, 1, 449)


def test_phrases_are_the_same_each_time_and_fit():
    first, second = (list(itertools.islice(writing.phrases(3), 50)) for _ in range(2))
    assert first == second
    assert all(3 <= len(text) <= writing.LONGEST for text in first)
