"""Messages of gRPC are those of the usual client."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette")

from tritonclient.grpc import service_pb2

from slipstream.serve.protocol.grpc_messages import NAMES, PACKAGE, message


def fields(descriptor):
    return sorted(
        (each.name, each.number, each.type, each.is_repeated, *map(name_of, parents(each)))
        for each in descriptor.fields
    )


def parents(field):
    return field.message_type, field.containing_oneof


def name_of(descriptor):
    return "" if descriptor is None else descriptor.full_name


@pytest.mark.parametrize("name", NAMES)
def test_fields_have_the_same_names_numbers_and_types(name):
    pool = service_pb2.DESCRIPTOR.pool
    theirs = pool.FindMessageTypeByName(f"{PACKAGE}.{name}")
    assert fields(message(name).DESCRIPTOR) == fields(theirs)


def test_bytes_of_one_are_read_by_the_other():
    ours = message("ModelInferRequest")(model_name="m", id="1", raw_input_contents=[b"1234"])
    ours.inputs.add(name="x", datatype="FP32", shape=[1])
    ours.parameters["timeout"].int64_param = 7
    theirs = service_pb2.ModelInferRequest.FromString(ours.SerializeToString())
    assert theirs.inputs[0].shape == [1]
    assert theirs.parameters["timeout"].int64_param == 7
    again = message("ModelInferRequest").FromString(theirs.SerializeToString())
    assert again == ours
