"""The requests and responses of REST: JSON, followed by binary tensors if the client asks.

Source: "Open Inference Protocol", version 2, and Triton's extensions "Binary tensor data" and
"Classification" (github.com/triton-inference-server/server, docs/protocol).
"""

# NumPy's stubs leave the types of what its methods return open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slipstream.infer.graph.graph import Array
from slipstream.infer.outputs.outputs import LABELS
from slipstream.serve.protocol.datatypes import (
    BYTES,
    JSON_LENGTH,
    array_of,
    array_of_numbers,
    byte_strings,
    datatype_of,
    number_of,
)
from slipstream.serve.refusals import invalid
from slipstream.serve.signature import Arrays, InputValue

_Sizes = list[int]
_Parameters = dict[str, Any]
_MOST_SIZES, _MOST_TENSORS = 16, 64


class _Message(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _Input(_Message):
    name: str
    shape: _Sizes = Field(max_length=_MOST_SIZES)
    datatype: str
    parameters: _Parameters = Field(default_factory=dict)
    data: Any = None


class _Output(_Message):
    name: str
    parameters: _Parameters = Field(default_factory=dict)


class _Body(_Message):
    id: str = ""
    parameters: _Parameters = Field(default_factory=dict)
    inputs: list[_Input] = Field(max_length=_MOST_TENSORS)
    outputs: list[_Output] = Field(default_factory=list, max_length=_MOST_TENSORS)


@dataclass(frozen=True, slots=True)
class InferenceCall:
    """A request for a result, in a form that is the same for REST and gRPC.

    Args:
        given: Inputs by name.
        id: Identifier of the request, which the response repeats; "" (the default) for no
            identifier.
        outputs: Form of each requested output by name: True for binary, False for JSON, or None if
            the request does not state the form. Empty (the default) requests all outputs.
        binary: Whether outputs are binary if the request does not state their form (default False).
        seconds: Time limit in seconds; None (the default) means the server's time limit.
    """

    given: Mapping[str, InputValue]
    id: str = ""
    outputs: Mapping[str, bool | None] = field(default_factory=dict[str, "bool | None"])
    binary: bool = False
    seconds: float | None = None


def parse_call(body: memoryview, json_length: str | None) -> InferenceCall:
    """Parse the body of a request.

    Args:
        body: Body of the request; the returned tensors share its memory.
        json_length: Value of the header field with the length of the JSON; None if the whole body
            is JSON.

    Raises RequestRefusedError if the body does not follow the protocol.
    """
    end = _json_end(len(body), json_length)
    message = _parsed(body[:end])
    given = _inputs(message.inputs, body[end:])
    return InferenceCall(
        given=given,
        id=message.id,
        outputs={each.name: each.parameters.get("binary_data") for each in message.outputs},
        binary=message.parameters.get("binary_data_output") is True,
        seconds=_timeout(message),
    )


def timeout_of(begun: bytearray, json_length: str | None) -> float | None:
    """Return a request's time limit in seconds, from the first bytes of its body.

    Args:
        begun: First bytes of the body.
        json_length: Value of the header field with the length of the JSON; None if the whole body
            is JSON.

    Returns None if the request sets no time limit, or if its JSON has not arrived in full.

    Raises RequestRefusedError if the JSON does not follow the protocol.
    """
    if json_length is None or not begun:
        return None
    is_number = json_length.isascii() and json_length.isdecimal() and len(json_length) < 20
    if not is_number or int(json_length) > len(begun):
        return None
    return _timeout(_parsed(memoryview(begun)[: int(json_length)]))


def _timeout(message: _Body) -> float | None:
    timeout = message.parameters.get("timeout")
    if timeout is None:
        return None
    if type(timeout) is not int or timeout <= 0:
        raise invalid(f"timeout is {timeout!r}; allowed: microseconds, 1 and more")
    return timeout * 1e-6


def build_response(
    call: InferenceCall, model: str, version: str, outputs: Arrays, classes: Sequence[str] = ()
) -> tuple[list[bytes | memoryview], int | None]:
    """Return the pieces of a response's body and the length of the JSON in the body.

    The length is None if the whole body is JSON.

    Args:
        call: Request that is answered.
        model: Name of the model.
        version: Version of the model.
        outputs: Outputs of the model, in the order in which the model returns them.
        classes: Names of the classes by class number (default none). If there are names, the output
            `labels` has a parameter with the name of each label.

    Raises RequestRefusedError if the request names an output that the model does not have.
    """
    tensors: list[dict[str, Any]] = []
    raw: list[bytes | memoryview] = []
    for name, binary in requested_outputs(call, outputs).items():
        array = np.asarray(outputs[name], order="C")
        tensor: dict[str, Any] = {
            "name": name, "datatype": datatype_of(array.dtype), "shape": list(array.shape),
        }  # fmt: skip
        if call.binary if binary is None else binary:
            tensor["parameters"] = {"binary_data_size": array.nbytes}
            raw.append(array.reshape(-1).view(np.uint8).data)
        else:
            tensor["data"] = _numbers(array)
        if classes and name == LABELS:
            tensor.setdefault("parameters", {})["classes"] = names_of(array, classes)
        tensors.append(tensor)
    content = {"model_name": model, "model_version": version, "outputs": tensors}
    if call.id:
        content["id"] = call.id
    head = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return [head, *raw], len(head) if raw else None


def names_of(labels: Array, classes: Sequence[str]) -> list[str]:
    """Return the class name of each number in an array; "" for a number without a class."""
    numbers: list[int] = labels.ravel().tolist()
    return [classes[at] if 0 <= at < len(classes) else "" for at in numbers]


def requested_outputs(
    call: InferenceCall, outputs: Mapping[str, Array]
) -> Mapping[str, bool | None]:
    """Return the form of each output to send, as in `InferenceCall.outputs`.

    If the request names no output, all outputs are sent.

    Raises RequestRefusedError if the model lacks a requested output.
    """
    wanted = call.outputs or dict.fromkeys(outputs)
    strange = [name for name in wanted if name not in outputs]
    if strange:
        raise invalid(f"there is no output {strange[0][:64]!r}; the model has {', '.join(outputs)}")
    return wanted


def _numbers(array: Array) -> Array | list[Any]:
    flat = array.reshape(-1)
    # orjson cannot write float16 and bfloat16; their finite numbers are exact in float32.
    return flat.astype(np.float32) if flat.dtype.name in ("float16", "bfloat16") else flat


def _json_end(length: int, json_length: str | None) -> int:
    if json_length is None:
        return length
    is_number = json_length.isascii() and json_length.isdecimal() and len(json_length) < 20
    if not is_number or int(json_length) > length:
        raise invalid(
            f"{JSON_LENGTH} is {json_length[:32]!r}; allowed: 0 to {length}, the bytes of the body"
        )
    return int(json_length)


def _parsed(text: memoryview) -> _Body:
    try:
        return _Body.model_validate(orjson.loads(text))
    except orjson.JSONDecodeError as error:
        raise invalid(f"the body is no JSON: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(each) for each in first["loc"]) or "the body"
        raise invalid(f"{where[:200]}: {first['msg']}") from error


def _inputs(inputs: Sequence[_Input], raw: memoryview) -> dict[str, InputValue]:
    found: dict[str, InputValue] = {}
    at = 0
    for each in inputs:
        if each.name in found:
            raise invalid(f"the input {each.name[:64]!r} is given twice")
        if any(size < 0 for size in each.shape):
            raise invalid(f"input {each.name[:64]!r} has the shape {each.shape}: below 0")
        size = each.parameters.get("binary_data_size")
        if size is None:
            found[each.name] = _of_json(each)
            continue
        if type(size) is not int or not 0 <= size <= len(raw) - at:
            raise invalid(
                f"input {each.name[:64]!r} has binary_data_size {size!r}; {len(raw) - at} bytes are"
                " left in the body"
            )
        found[each.name] = of_raw(raw[at : at + size], each.datatype, each.shape, each.name[:64])
        at += size
    if at != len(raw):
        raise invalid(f"the body has {len(raw) - at} bytes that belong to no input")
    return found


def of_raw(raw: memoryview, datatype: str, shape: Sequence[int], name: str) -> InputValue:
    """Return a tensor, or a list of files if the datatype is BYTES.

    The tensor and the files share the memory of `raw`.
    """
    if datatype == BYTES:
        return byte_strings(raw, shape, name)
    return array_of(raw, datatype, shape, name)


def _of_base64(data: Any, shape: Sequence[int], name: str) -> list[memoryview]:
    """Return the files of a tensor of BYTES; in JSON, each file is {"b64": base64 text}."""
    if not isinstance(data, list):
        data = [data]
    elements: list[Any] = data
    if len(elements) != number_of(shape):
        raise invalid(
            f"input {name!r} has {len(elements)} elements; the shape {list(shape)} needs"
            f" {number_of(shape)}"
        )
    try:
        return [memoryview(b64decode(each["b64"], validate=True)) for each in elements]
    except (TypeError, KeyError, ValueError) as error:
        raise invalid(
            f'input {name!r} is BYTES; in JSON each element is {{"b64": its bytes in base64}}, or'
            " send it as binary data, with binary_data_size"
        ) from error


def _of_json(given: _Input) -> InputValue:
    name = given.name[:64]
    if given.data is None:
        raise invalid(f"input {name!r} has neither data nor binary_data_size")
    if given.datatype == BYTES:
        return _of_base64(given.data, given.shape, name)
    return array_of_numbers(given.data, given.datatype, given.shape, name)
