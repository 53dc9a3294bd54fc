"""BodyMemory of REST: as the usual client makes them and reads them, and damaged ones."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("starlette")

from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

from slipstream.serve.protocol.messages import (
    InferenceCall,
    build_response,
    parse_call,
    timeout_of,
)
from slipstream.serve.refusals import RequestRefusedError

X = np.arange(6, dtype=np.float32).reshape(2, 3)
N = np.array([1, 2, 3], np.int64)


def body_of(binary=True, **more):
    inputs = [InferInput("x", X.shape, "FP32"), InferInput("n", N.shape, "INT64")]
    inputs[0].set_data_from_numpy(X, binary_data=binary)
    inputs[1].set_data_from_numpy(N, binary_data=True)
    body, length = InferenceServerClient.generate_request_body(inputs, **more)
    return memoryview(body), None if length is None else str(length)


@pytest.mark.parametrize("binary", [False, True])
def test_what_the_usual_client_sends_is_read(binary):
    outputs = [InferRequestedOutput("y", binary_data=True), InferRequestedOutput("z", False)]
    call = parse_call(*body_of(binary, request_id="7", outputs=outputs, timeout=5000))
    np.testing.assert_array_equal(call.given["x"], X)
    np.testing.assert_array_equal(call.given["n"], N)
    assert (call.id, call.seconds) == ("7", 0.005)
    assert call.outputs == {"y": True, "z": False}


def test_without_outputs_the_usual_client_wants_all_as_bytes():
    call = parse_call(*body_of())
    assert (dict(call.outputs), call.binary) == ({}, True)


def test_tensors_stay_on_the_body():
    body, length = body_of()
    found = parse_call(body, length).given["n"]
    assert np.shares_memory(found, np.frombuffer(body, np.uint8))


@pytest.mark.parametrize("binary", [None, False, True])
def test_what_is_answered_the_usual_client_reads(random, binary):
    outputs = {
        "y": random.random((2, 5)).astype(np.float32),
        "z": np.array([[3], [4]]),
        "loss": np.array(0.5, np.float32),
    }
    call = InferenceCall({}, id="9", binary=bool(binary))
    pieces, length = build_response(call, "model", "2", outputs)
    found = InferenceServerClient.parse_response_body(b"".join(pieces), header_length=length)
    for name, array in outputs.items():
        np.testing.assert_array_equal(found.as_numpy(name), array)
        assert found.as_numpy(name).shape == array.shape
    said = found.get_response()
    assert (said["model_name"], said["model_version"], said["id"]) == ("model", "2", "9")


def test_only_outputs_that_are_wanted_are_answered():
    outputs = {"y": X, "z": N}
    pieces, _ = build_response(InferenceCall({}, outputs={"z": None}), "model", "1", outputs)
    (found,) = json.loads(pieces[0])["outputs"]
    assert found == {"name": "z", "datatype": "INT64", "shape": [3], "data": [1, 2, 3]}
    with pytest.raises(RequestRefusedError, match="there is no output 'w'; the model has y, z"):
        build_response(InferenceCall({}, outputs={"w": None}), "model", "1", outputs)


@pytest.mark.parametrize("binary", [False, True])
def test_labels_have_the_names_of_their_classes(binary):
    outputs = {"labels": np.array([[2, 0, -1]]), "n": np.array([[1]])}
    pieces, _ = build_response(
        InferenceCall({}, binary=binary), "model", "1", outputs, ("ant", "cat", "dog")
    )
    labels, other = json.loads(pieces[0])["outputs"]
    assert labels["parameters"]["classes"] == ["dog", "ant", ""]
    assert "classes" not in other.get("parameters", {})


@pytest.mark.parametrize(("dtype", "datatype"), [("float16", "FP16"), ("bfloat16", "BF16")])
def test_halves_are_written_as_numbers(dtype, datatype):
    pieces, _ = build_response(InferenceCall({}), "model", "1", {"y": np.array([0.5], dtype)})
    (found,) = json.loads(pieces[0])["outputs"]
    assert (found["datatype"], found["data"]) == (datatype, [0.5])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "no JSON"),
        (b"[]", "the body: Input should be"),
        (b"{}", "inputs: Field required"),
        (b'{"inputs": [{"name": 1}]}', "inputs.0.name: Input should be a valid string"),
        (b'{"inputs": [{"name": "x", "shape": [-1], "datatype": "FP32"}]}', "below 0"),
        (b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32"}]}', "neither data nor"),
        (
            b'{"inputs": [{"name": "x", "shape": [1], "datatype": "BYTES", "data": ["a"]}]}',
            "send it as binary data",
        ),
        (
            b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]},'
            b'{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}',
            "is given twice",
        ),
        (b'{"parameters": {"timeout": -1}, "inputs": []}', "timeout is -1"),
        (b'{"parameters": {"timeout": true}, "inputs": []}', "timeout is True"),
        (b"[" * 100_000, "no JSON"),
    ],
)
def test_bodies_that_are_wrong_say_how(body, words):
    with pytest.raises(RequestRefusedError, match=words):
        parse_call(memoryview(body), None)


@pytest.mark.parametrize(("count", "is_read"), [(16, True), (17, False)])
def test_a_shape_has_16_sizes_at_most(count, is_read):
    tensor = {"name": "x", "shape": [1] * count, "datatype": "FP32", "data": [1]}
    check_read(is_read, "inputs.0.shape: .* at most 16", inputs=[tensor])


@pytest.mark.parametrize(("count", "is_read"), [(64, True), (65, False)])
@pytest.mark.parametrize("key", ["inputs", "outputs"])
def test_64_tensors_are_given_and_wanted_at_most(key, count, is_read):
    tensor = {"shape": [1], "datatype": "FP32", "data": [1]}
    tensors = [{"name": f"t{number}", **tensor} for number in range(count)]
    check_read(is_read, f"{key}: .* at most 64", **{"inputs": tensors[:1], key: tensors})


def check_read(is_read, words, **message):
    body = memoryview(json.dumps(message).encode())
    if is_read:
        parse_call(body, None)
    else:
        with pytest.raises(RequestRefusedError, match=words):
            parse_call(body, None)


@pytest.mark.parametrize(
    ("length", "words"),
    [
        ("-1", "allowed: 0 to"),
        ("x", "allowed: 0 to"),
        ("999999", "allowed: 0 to"),
        ("²", "allowed"),
    ],
)
def test_the_length_of_json_is_checked(length, words):
    body, _ = body_of()
    with pytest.raises(RequestRefusedError, match=words):
        parse_call(body, length)


def test_bytes_that_are_missing_or_too_many_are_refused():
    body, length = body_of()
    with pytest.raises(RequestRefusedError, match="bytes are left in the body"):
        parse_call(body[:-1], length)
    with pytest.raises(RequestRefusedError, match="has 4 bytes that belong to no input"):
        parse_call(memoryview(bytes(body) + bytes(4)), length)


def test_damaged_bodies_are_refused_and_nothing_else(random):
    whole, length = body_of()
    for _ in range(3000):
        raw = bytearray(whole[: random.integers(1, len(whole) + 1)])
        for place in random.integers(min(len(raw), int(length)), size=random.integers(4)):
            raw[place] = random.integers(256)
        try:
            parse_call(memoryview(bytes(raw)), length if random.random() < 0.9 else None)
        except RequestRefusedError as error:
            assert len(str(error)) < 1000  # noqa: PT017


@pytest.mark.parametrize(("timeout", "seconds"), [(1, 1e-6), (2_500_000, 2.5), (None, None)])
def test_a_timeout_is_in_microseconds(timeout, seconds):
    message = {"inputs": [], "parameters": {} if timeout is None else {"timeout": timeout}}
    assert parse_call(memoryview(json.dumps(message).encode()), None).seconds == seconds


@pytest.mark.parametrize("timeout", [0, 1.5, "9"])
def test_other_timeouts_are_refused(timeout):
    message = {"inputs": [], "parameters": {"timeout": timeout}}
    with pytest.raises(RequestRefusedError, match="allowed: microseconds, 1 and more"):
        parse_call(memoryview(json.dumps(message).encode()), None)


def test_a_body_of_json_alone_may_say_its_length():
    body = memoryview(b'{"inputs": []}')
    call = parse_call(body, str(len(body)))
    assert call == InferenceCall({})
    assert (call.id, call.outputs, call.binary, call.seconds) == ("", {}, False, None)
    with pytest.raises(
        RequestRefusedError, match="is '15'; allowed: 0 to 14, the bytes of the body"
    ):
        parse_call(body, "15")


@pytest.mark.parametrize(("wanted", "binary"), [(True, False), (False, True)])
def test_what_an_output_says_comes_before_what_the_request_says(wanted, binary):
    outputs = {"y": X, "z": N}
    call = InferenceCall({}, outputs={"y": wanted, "z": None}, binary=binary)
    pieces, length = build_response(call, "model", "1", outputs)
    y, z = json.loads(pieces[0])["outputs"]
    assert ("data" in y, "data" in z) == (not wanted, not binary)
    assert length == len(pieces[0])
    assert [bytes(each) for each in pieces[1:]] == [(X if wanted else N).tobytes()]


@pytest.mark.parametrize("size", [-1, 25, True, "24", 1.0])
def test_the_bytes_of_a_tensor_are_a_number_of_those_that_are_left(size):
    tensor = {"name": "x", "shape": [2, 3], "datatype": "FP32"}
    head = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": size}}]}).encode()
    words = f"has binary_data_size {size!r}; 24 bytes are left in the body"
    with pytest.raises(RequestRefusedError, match=words):
        parse_call(memoryview(head + X.tobytes()), str(len(head)))


def test_files_are_elements_of_bytes_binary_or_in_base64():
    raw = b"\3\0\0\0one"
    tensor = {"name": "x", "shape": [1], "datatype": "BYTES"}
    head = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": 7}}]}).encode()
    (file,) = parse_call(memoryview(head + raw), str(len(head))).given["x"]
    assert bytes(file) == b"one"
    body = json.dumps({"inputs": [{**tensor, "data": [{"b64": "b25l"}]}]}).encode()
    (file,) = parse_call(memoryview(body), None).given["x"]
    assert bytes(file) == b"one"
    for data in (["one"], [{"b64": "b25l!"}], [{"b64": 1}], [{}]):
        check_read(False, "is BYTES; in JSON each element is", inputs=[{**tensor, "data": data}])
    check_read(False, "has 2 elements", inputs=[{**tensor, "data": [{"b64": "b25l"}] * 2}])
    check_read(False, "has neither data nor binary_data_size", inputs=[tensor])
    check_read(False, r"has the shape \[-1\]: below 0", inputs=[{**tensor, "shape": [-1]}])


def test_a_tensor_may_be_empty():
    tensor = {"name": "x", "shape": [0, 3], "datatype": "FP32", "data": []}
    body = memoryview(json.dumps({"inputs": [tensor]}).encode())
    assert parse_call(body, None).given["x"].shape == (0, 3)


def test_the_timeout_is_known_as_soon_as_the_json_has_arrived():
    tensor = {"name": "x", "shape": [2, 3], "datatype": "FP32"}
    head = json.dumps({"inputs": [tensor], "parameters": {"timeout": 1500}}).encode()
    length = str(len(head))
    assert timeout_of(bytearray(head + b"\0"), length) == 0.0015
    for begun, json_length in ((head[:-1], length), (head, None), (b"", length), (head, "-1")):
        assert timeout_of(bytearray(begun), json_length) is None
    without = json.dumps({"inputs": [tensor]}).encode()
    assert timeout_of(bytearray(without), str(len(without))) is None
    with pytest.raises(RequestRefusedError, match="no JSON"):
        timeout_of(bytearray(b"{"), "1")
