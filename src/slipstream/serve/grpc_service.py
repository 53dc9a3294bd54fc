"""The gRPC service of the Open Inference Protocol, version 2."""

# The classes of messages are built at run time, and grpcio has few type annotations.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import grpc
import numpy as np
from google.protobuf.message import DecodeError

from slipstream.infer.graph.graph import Array
from slipstream.infer.outputs.outputs import LABELS
from slipstream.serve.access import Tokens
from slipstream.serve.handler import RequestHandler
from slipstream.serve.protocol.datatypes import BYTES, array_of_numbers, datatype_of, number_of
from slipstream.serve.protocol.grpc_messages import SERVICE, message
from slipstream.serve.protocol.messages import InferenceCall, names_of, of_raw, requested_outputs
from slipstream.serve.refusals import RequestRefusedError, invalid
from slipstream.serve.signature import InputValue

# Field of InferTensorContents for each datatype; it is used unless tensors are sent as raw bytes.
_CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents",
    "INT32": "int_contents", "INT64": "int64_contents", "UINT8": "uint_contents",
    "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents",
}  # fmt: skip

_OPEN = ("ServerLive", "ServerReady")

_Method = Callable[[Any, Any], Awaitable[Any]]


class GrpcService:
    """The methods of the gRPC service.

    Args:
        handler: Object that executes the requests.
        tokens: Tokens that grant access; the health methods need no token.
        version: Version of the server.
    """

    def __init__(self, handler: RequestHandler, tokens: Tokens, version: str) -> None:
        self._handler, self._tokens, self._version = handler, tokens, version
        self._repository = handler.repository

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler that a gRPC server registers."""
        methods = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server,
            "ModelMetadata": self._model,
            "ModelInfer": self._infer,
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                _guarded(name, answer, Tokens() if name in _OPEN else self._tokens),
                response_serializer=message(f"{name}Response").SerializeToString,
            )
            for name, answer in methods.items()
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def _live(self, _: Any, __: Any) -> Any:
        return message("ServerLiveResponse")(live=True)

    async def _ready(self, _: Any, __: Any) -> Any:
        return message("ServerReadyResponse")(ready=self._repository.is_ready)

    async def _model_ready(self, request: Any, _: Any) -> Any:
        found = self._repository.get(request.name, request.version)
        return message("ModelReadyResponse")(ready=found is not None)

    async def _server(self, _: Any, __: Any) -> Any:
        return message("ServerMetadataResponse")(name="slipstream", version=self._version)

    async def _model(self, request: Any, _: Any) -> Any:
        served = self._repository.find(request.name, request.version)
        response = message("ModelMetadataResponse")(
            name=served.spec.name,
            versions=self._repository.versions(served.spec.name),
            platform="slipstream",
        )
        for tensors, into in (
            (served.signature.inputs, response.inputs),
            (served.signature.outputs, response.outputs),
        ):
            for description in served.signature.described(tensors):
                into.add(**description)
        return response

    async def _infer(self, request: Any, context: Any) -> Any:
        fields = {name: str(value) for name, value in context.invocation_metadata() or ()}
        name, version = request.model_name, request.model_version
        with self._handler.request("grpc", name, version, fields) as active:
            record = active.record
            record.num_bytes = request.ByteSize()
            if record.trace:
                await context.send_initial_metadata(tuple(record.trace.items()))
            call = _call_of(request, context.time_remaining())
            done = await active.answer(call)
            classes = active.served.manifest.classes
            response = _response_of(request, call, done.outputs, classes)
            response.model_name, response.model_version = record.model, record.version
            return response


def _guarded(name: str, answer: _Method, tokens: Tokens) -> _Method:
    """Return a method that first checks the token and the message, and aborts refused calls."""
    read = message(f"{name}Request").FromString

    async def guarded(raw: Any, context: Any) -> Any:
        try:
            if tokens.allowed:
                fields = dict(context.invocation_metadata() or ())
                tokens.check(str(fields.get("authorization", "")))
            return await answer(_read(read, raw), context)
        except RequestRefusedError as error:
            if error.retry_after is not None:
                seconds = str(max(1, math.ceil(error.retry_after)))
                context.set_trailing_metadata((("retry-after", seconds),))
            await context.abort(grpc.StatusCode[error.reason.grpc], str(error))

    return guarded


def _read(read: Callable[[bytes], Any], raw: bytes) -> Any:
    try:
        return read(raw)
    except DecodeError as error:
        raise invalid(f"the message cannot be read: {error}") from error


def _call_of(request: Any, remaining: float | None) -> InferenceCall:
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise invalid(f"there are {len(raw)} raw contents for {len(request.inputs)} inputs")
    given: dict[str, InputValue] = {}
    for number, each in enumerate(request.inputs):
        if each.name in given:
            raise invalid(f"the input {each.name[:64]!r} is given twice")
        if any(size < 0 for size in each.shape):
            raise invalid(f"input {each.name[:64]!r} has the shape {list(each.shape)[:16]}")
        if raw:
            view = memoryview(raw[number])
            given[each.name] = of_raw(view, each.datatype, list(each.shape), each.name[:64])
        else:
            given[each.name] = _of_contents(each)
    timeout = _timeout(request.parameters)
    seconds = min(remaining or math.inf, timeout or math.inf)
    return InferenceCall(
        given=given,
        id=request.id,
        outputs={each.name: True for each in request.outputs},
        seconds=None if seconds == math.inf else seconds,
    )


def _timeout(parameters: Mapping[str, Any]) -> float | None:
    if "timeout" not in parameters:
        return None
    micros = parameters["timeout"].int64_param or parameters["timeout"].uint64_param
    if micros <= 0:
        raise invalid("timeout has to be an integer: microseconds, 1 and more")
    return micros * 1e-6


def _of_contents(given: Any) -> InputValue:
    shape, name = list(given.shape), given.name[:64]
    if given.datatype == BYTES:
        files = [memoryview(each) for each in given.contents.bytes_contents]
        if len(files) != number_of(shape):
            raise invalid(f"input {name!r} has {len(files)} elements; its shape is {shape[:16]}")
        return files
    if given.datatype not in _CONTENTS:
        raise invalid(
            f"input {name!r} is {given.datatype[:32]!r}; in contents are {', '.join(_CONTENTS)};"
            " other datatypes must be raw"
        )
    return array_of_numbers(
        np.array(getattr(given.contents, _CONTENTS[given.datatype])), given.datatype, shape, name
    )


def _response_of(
    request: Any, call: InferenceCall, outputs: Mapping[str, Array], classes: Sequence[str]
) -> Any:
    """Build the response to a call.

    If the class names are known, the output `labels` has the parameter `classes`: a line for each
    label, with the name of its class.
    """
    response = message("ModelInferResponse")(id=request.id)
    for name in requested_outputs(call, outputs):
        array = np.asarray(outputs[name], order="C")
        tensor = response.outputs.add(
            name=name, datatype=datatype_of(array.dtype), shape=list(array.shape)
        )
        if classes and name == LABELS:
            tensor.parameters["classes"].string_param = "\n".join(names_of(array, classes))
        response.raw_output_contents.append(array.tobytes())
    return response
