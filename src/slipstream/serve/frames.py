"""What a server and its replicas' processes say to each other: JSON, and tensors behind it."""

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

# Bytes of the JSON, and of all tensors.
SIZES = struct.Struct("<IQ")


def pieces_of(content: Mapping[str, Any], tensors: Mapping[str, Array]) -> list[Any]:
    """Returns the pieces of a frame, tensors where they are.

    Args:
        content: to be JSON; "tensors" is not among it.
        tensors: by name.
    """
    whole = {name: np.asarray(each, order="C") for name, each in tensors.items()}
    said = [[name, str(each.dtype), list(each.shape)] for name, each in whole.items()]
    head = orjson.dumps({**content, "tensors": said})
    sizes = SIZES.pack(len(head), sum(each.nbytes for each in whole.values()))
    return [sizes, head, *(each.reshape(-1).view(np.uint8).data for each in whole.values())]


def parts_of(head: bytes, payload: bytearray | bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    """Returns the content of a frame and its tensors, which stay on its bytes.

    Args:
        head: its JSON.
        payload: bytes of all tensors.
    """
    content: dict[str, Any] = orjson.loads(head)
    tensors: dict[str, Array] = {}
    at = 0
    for name, dtype, shape in content.pop("tensors"):
        count = int(np.prod(shape))
        tensors[name] = np.frombuffer(payload, dtype, count, at).reshape(shape)
        at += tensors[name].nbytes
    return content, tensors
