"""What a server and its replicas' processes say to each other."""

from __future__ import annotations

import struct

import numpy as np
import pytest

pytest.importorskip("starlette")

from slipstream.serve.frames import SIZES, parts_of, pieces_of


def whole(content, tensors):
    """Return the sizes, the head and the payload of a frame."""
    data = b"".join(pieces_of(content, tensors))
    length, num_bytes = struct.unpack_from("<IQ", data)
    assert len(data) == 12 + length + num_bytes
    return data[12 : 12 + length], bytearray(data[12 + length :])


def test_content_and_tensors_come_back_from_the_bytes_of_a_frame():
    tensors = {
        "a": np.arange(6, dtype=np.int64).reshape(2, 3).T,
        "empty": np.zeros((0, 3), np.float32),
        "scalar": np.array(2.5),
        "flags": np.array([True, False, True]),
    }
    head, payload = whole({"do": "run", "number": 7}, tensors)
    content, found = parts_of(head, payload)
    assert content == {"do": "run", "number": 7}
    assert list(found) == list(tensors)
    for name, array in tensors.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)
        assert array.size == 0 or np.shares_memory(found[name], np.frombuffer(payload, np.uint8))


def test_a_frame_without_tensors_is_its_json():
    assert SIZES.size == 12
    head, payload = whole({"number": 1}, {})
    assert (head, payload) == (b'{"number":1,"tensors":[]}', b"")
    assert parts_of(head, payload) == ({"number": 1}, {})
