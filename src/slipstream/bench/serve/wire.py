"""Requests and answers of `slipstream bench serve` in the binary Open Inference Protocol."""

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
    """Return a pair: the body of a request, and the length of its JSON in bytes.

    Args:
        inputs: Input arrays by name.
        deadline: Deadline of the request in seconds (default None: the server's default).
    """
    arrays = {name: np.asarray(array, order="C") for name, array in inputs.items()}
    tensors = [
        {
            "name": name, "datatype": datatype_of(array.dtype), "shape": list(array.shape),
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in arrays.items()
    ]  # fmt: skip
    parameters: dict[str, bool | int] = {"binary_data_output": True}
    if deadline is not None:
        parameters["timeout"] = max(1, round(deadline * 1e6))
    head = orjson.dumps({"inputs": tensors, "parameters": parameters})
    return b"".join([head, *(array.tobytes() for array in arrays.values())]), len(head)


def tensors_of(body: bytes, json_length: int) -> dict[str, Array]:
    """Return the output tensors of a response body by name.

    Args:
        body: JSON, followed by the bytes of the tensors.
        json_length: Length of the JSON in bytes.
    """
    outputs: dict[str, Array] = {}
    begin = json_length
    for tensor in orjson.loads(body[:json_length])["outputs"]:
        name = tensor["name"]
        end = begin + tensor["parameters"]["binary_data_size"]
        raw = memoryview(body)[begin:end]
        outputs[name] = array_of(raw, tensor["datatype"], tensor["shape"], name)
        begin = end
    return outputs


def request_of(body: bytes, json_length: int) -> bytes:
    """Return the bytes of an HTTP request with its header and its body.

    Args:
        body: Body from `body_of`.
        json_length: Length of the JSON in bytes, from `body_of`.
    """
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
        f"{JSON_LENGTH}: {json_length}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
