"""Requests and answers of `slipstream bench serve`: the binary Open Inference Protocol."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import orjson

from slipstream.infer.graph.graph import Array
from slipstream.serve.protocol.datatypes import array_of, datatype_of
from slipstream.serve.protocol.messages import JSON_LENGTH

MODEL = "model"
PATH = f"/v2/models/{MODEL}/infer"


def body_of(inputs: Mapping[str, Array], deadline: float | None = None) -> tuple[bytes, int]:
    """Return the body of a request, and the length of the JSON that it begins with.

    Args:
        inputs: Inputs by name.
        deadline: Deadline of the request, in seconds; None for the server's own.
    """
    whole = {name: np.asarray(each, order="C") for name, each in inputs.items()}
    said = [
        {
            "name": name, "datatype": datatype_of(each.dtype), "shape": list(each.shape),
            "parameters": {"binary_data_size": each.nbytes},
        }
        for name, each in whole.items()
    ]  # fmt: skip
    parameters: dict[str, bool | int] = {"binary_data_output": True}
    if deadline is not None:
        parameters["timeout"] = max(1, round(deadline * 1e6))
    head = orjson.dumps({"inputs": said, "parameters": parameters})
    return b"".join([head, *(each.tobytes() for each in whole.values())]), len(head)


def tensors_of(body: bytes, json_length: int) -> dict[str, Array]:
    """Return the outputs of a response by name.

    Args:
        body: JSON, and the bytes of tensors.
        json_length: bytes of the JSON.
    """
    found: dict[str, Array] = {}
    at = json_length
    for each in orjson.loads(body[:json_length])["outputs"]:
        end = at + each["parameters"]["binary_data_size"]
        raw = memoryview(body)[at:end]
        found[each["name"]] = array_of(raw, each["datatype"], each["shape"], each["name"])
        at = end
    return found


def request_of(body: bytes, json_length: int) -> bytes:
    """Return the bytes of a request, with those of its body.

    Args:
        body: Body from `body_of`.
        json_length: Length of the JSON part, from `body_of`.
    """
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
        f"{JSON_LENGTH}: {json_length}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
