"""The frames between a server and its worker processes: JSON, followed by the bytes of tensors."""

# NumPy's stubs leave the types of what its methods return open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from slipstream.infer.graph.graph import Array

# The header of a frame: the size of the JSON, and the size of all tensors together, in bytes.
SIZES = struct.Struct("<IQ")


def pieces_of(content: Mapping[str, Any], tensors: Mapping[str, Array]) -> list[Any]:
    """Return the pieces of a frame, without copying the tensors.

    Args:
        content: Values that are sent as JSON; the key "tensors" is reserved.
        tensors: Tensors by name.
    """
    arrays = {name: np.asarray(each, order="C") for name, each in tensors.items()}
    described = [[name, str(each.dtype), list(each.shape)] for name, each in arrays.items()]
    head = orjson.dumps({**content, "tensors": described})
    sizes = SIZES.pack(len(head), sum(each.nbytes for each in arrays.values()))
    return [sizes, head, *(each.reshape(-1).view(np.uint8).data for each in arrays.values())]


def parts_of(head: bytes, payload: bytearray | bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return a frame's content and its tensors; the tensors share the memory of `payload`.

    Args:
        head: JSON of the frame.
        payload: Bytes of all tensors.
    """
    content: dict[str, Any] = orjson.loads(head)
    tensors: dict[str, Array] = {}
    at = 0
    for name, dtype, shape in content.pop("tensors"):
        count = int(np.prod(shape))
        tensors[name] = np.frombuffer(payload, dtype, count, at).reshape(shape)
        at += tensors[name].nbytes
    return content, tensors
