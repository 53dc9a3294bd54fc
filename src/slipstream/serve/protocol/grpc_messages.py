"""The gRPC messages of the Open Inference Protocol, built from a table of their fields.

The messages are in a descriptor pool of their own, because a program may also import the protocol's
usual client, whose messages have the same names.

Source of the names and numbers of the fields: "Open Inference Protocol", version 2, gRPC.
"""

# The classes are built at run time, so a type checker does not know their fields.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"

_Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "bool": _Field.TYPE_BOOL, "int32": _Field.TYPE_INT32, "int64": _Field.TYPE_INT64,
    "uint32": _Field.TYPE_UINT32, "uint64": _Field.TYPE_UINT64, "float": _Field.TYPE_FLOAT,
    "double": _Field.TYPE_DOUBLE, "string": _Field.TYPE_STRING, "bytes": _Field.TYPE_BYTES,
}  # fmt: skip
_PARAMETERS = "map InferParameter parameters"
# The fields of each message with type, name and number; "*" before a type means repeated.
_NAME_VERSION = "string name = 1; string version = 2"
_TENSOR = (
    f"string name = 1; string datatype = 2; *int64 shape = 3; {_PARAMETERS} = 4;"
    " InferTensorContents contents = 5"
)
_MESSAGES = {
    "InferParameter": "bool bool_param = 1; int64 int64_param = 2; string string_param = 3;"
    " double double_param = 4; uint64 uint64_param = 5",
    "InferTensorContents": "*bool bool_contents = 1; *int32 int_contents = 2;"
    " *int64 int64_contents = 3; *uint32 uint_contents = 4; *uint64 uint64_contents = 5;"
    " *float fp32_contents = 6; *double fp64_contents = 7; *bytes bytes_contents = 8",
    "ServerLiveRequest": "",
    "ServerLiveResponse": "bool live = 1",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "bool ready = 1",
    "ModelReadyRequest": _NAME_VERSION,
    "ModelReadyResponse": "bool ready = 1",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": f"{_NAME_VERSION}; *string extensions = 3",
    "ModelMetadataRequest": _NAME_VERSION,
    "ModelMetadataResponse.TensorMetadata": "string name = 1; string datatype = 2;"
    " *int64 shape = 3",
    "ModelMetadataResponse": "string name = 1; *string versions = 2; string platform = 3;"
    " *ModelMetadataResponse.TensorMetadata inputs = 4;"
    " *ModelMetadataResponse.TensorMetadata outputs = 5",
    "ModelInferRequest.InferInputTensor": _TENSOR,
    "ModelInferRequest.InferRequestedOutputTensor": f"string name = 1; {_PARAMETERS} = 2",
    "ModelInferRequest": "string model_name = 1; string model_version = 2; string id = 3;"
    f" {_PARAMETERS} = 4; *ModelInferRequest.InferInputTensor inputs = 5;"
    " *ModelInferRequest.InferRequestedOutputTensor outputs = 6; *bytes raw_input_contents = 7",
    "ModelInferResponse.InferOutputTensor": _TENSOR,
    "ModelInferResponse": "string model_name = 1; string model_version = 2; string id = 3;"
    f" {_PARAMETERS} = 4; *ModelInferResponse.InferOutputTensor outputs = 5;"
    " *bytes raw_output_contents = 6",
}
# The oneof: only one field of this message is set.
_CHOICE = "InferParameter", "parameter_choice"


def _made() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(
        name="open_inference.proto", package=PACKAGE, syntax="proto3"
    )
    known: dict[str, Any] = {}
    for path, fields in sorted(_MESSAGES.items()):
        parent, _, name = path.rpartition(".")
        message = known[parent].nested_type.add() if parent else file.message_type.add()
        message.name, known[path] = name, message
        if path == _CHOICE[0]:
            message.oneof_decl.add(name=_CHOICE[1])
        for text in filter(None, fields.split("; ")):
            _add_field(message, path, text)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _add_field(message: Any, path: str, text: str) -> None:
    """Add a field to the descriptor of a message.

    Args:
        message: Descriptor of the message.
        path: Name of the message, after the names of the messages that contain it.
        text: Declaration "TYPE name = NUMBER", or "map TYPE name = NUMBER" for a map with strings
            as keys.
    """
    declared, _, number = text.partition(" = ")
    *kinds, name = declared.split(" ")
    kind, is_map = kinds[-1], kinds[0] == "map"
    field = message.field.add(name=name, number=int(number), label=_Field.LABEL_OPTIONAL)
    if kind.startswith("*") or is_map:
        field.label = _Field.LABEL_REPEATED
    kind = kind.removeprefix("*")
    if is_map:
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        _add_field(entry, entry.name, "string key = 1")
        _add_field(entry, entry.name, f"{kind} value = 2")
        kind = f"{path}.{entry.name}"
    if kind in _TYPES:
        field.type = _TYPES[kind]
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    if path == _CHOICE[0]:
        field.oneof_index = 0


_POOL = _made()
NAMES = tuple(_MESSAGES)


def message(name: str) -> Any:
    """Return the class of a message.

    Args:
        name: Name of the message in the protocol, such as "ModelInferRequest".
    """
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))
