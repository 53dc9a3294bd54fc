"""The service of gRPC: what calls are answered, and what refusals are called."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("starlette")

from slipstream.serve.access import Tokens
from slipstream.serve.grpc_service import GrpcService
from slipstream.serve.handler import RequestHandler
from slipstream.serve.protocol.grpc_messages import SERVICE, message

PARENT = f"00-{'ab' * 16}-{'cd' * 8}-01"
X = np.array([[1, 2], [3, 4]], np.float32)


class AbortedError(Exception):
    """What gRPC raises where a call is aborted."""


class Context:
    """A call as gRPC has it."""

    def __init__(self, metadata, timeout):
        self.metadata, self.timeout = metadata, timeout
        self.initial, self.trailing = (), ()

    def invocation_metadata(self):
        return self.metadata

    def time_remaining(self):
        return self.timeout

    async def send_initial_metadata(self, metadata):
        self.initial = metadata

    def set_trailing_metadata(self, metadata):
        self.trailing = metadata

    async def abort(self, code, details):
        raise AbortedError(code.name, details)


class Client:
    """Calls a service, and knows what was recorded."""

    def __init__(self, service, records):
        self.handler, self.records, self.context = service.handler(), records, None

    async def call(self, name, asked=None, *, raw=None, metadata=None, timeout=None):
        """Return the answer to a message or to raw bytes."""
        asked = message(f"{name}Request")() if asked is None else asked
        self.context = Context(metadata, timeout)
        details = SimpleNamespace(method=f"/{SERVICE}/{name}", invocation_metadata=metadata)
        method = self.handler.service(details)
        given = asked.SerializeToString() if raw is None else raw
        found = method.response_serializer(await method.unary_unary(given, self.context))
        return message(f"{name}Response").FromString(found)

    async def refused(self, name, asked=None, **options):
        """Return the code, the message and the trailing metadata of a refused call."""
        with pytest.raises(AbortedError) as caught:
            await self.call(name, asked, **options)
        return *caught.value.args, dict(self.context.trailing)


@pytest.fixture
def connected(repository):
    """Run a coroutine function with a client of a server of m, versions 1 and 2, and of n."""

    def run(main, *, tokens=(), seconds=60.0):
        async def start():
            models, records = repository("m=a.slip", "m=b.slip@0%", "n=c.slip"), []
            for each in models.specs[:2]:
                await models.load(each.name, each.version)
            handler = RequestHandler(models, seconds, [records.append])
            await main(Client(GrpcService(handler, Tokens(tokens), "1.2"), records))

        asyncio.run(start())

    return run


def infer(datatype="FP32", shape=(2, 2), raw=X, *, names=("x",), model="m", **more):
    asked = message("ModelInferRequest")(model_name=model, **more)
    for name in names:
        asked.inputs.add(name=name, datatype=datatype, shape=shape)
    if raw is not None:
        asked.raw_input_contents.append(raw.tobytes())
    return asked


def test_a_result_has_what_was_asked(connected):
    async def main(client):
        asked = infer(id="7", model_version="2")
        metadata = (("traceparent", PARENT), ("tracestate", "v=1"))
        found = await client.call("ModelInfer", asked, metadata=metadata)
        assert (found.model_name, found.model_version, found.id) == ("m", "2", "7")
        (output,) = found.outputs
        assert (output.name, output.datatype, list(output.shape)) == ("y", "FP32", [2])
        assert found.raw_output_contents == [np.array([3, 7], np.float32).tobytes()]
        assert client.context.initial == metadata
        (record,) = client.records
        assert (record.protocol, record.num_bytes) == ("grpc", asked.ByteSize())
        assert (record.rows, record.id) == (2, "7")

    connected(main)


def test_contents_may_be_numbers_and_outputs_named(connected):
    async def main(client):
        asked = infer(raw=None)
        asked.inputs[0].contents.fp32_contents.extend(X.reshape(-1))
        asked.outputs.add(name="y")
        found = await client.call("ModelInfer", asked)
        assert found.raw_output_contents == [np.array([3, 7], np.float32).tobytes()]
        asked.outputs.add(name="z")
        code, words, _ = await client.refused("ModelInfer", asked)
        assert (code, words) == ("INVALID_ARGUMENT", "there is no output 'z'; the model has y")

    connected(main)


def test_a_scalar_has_no_sizes(connected, sums):
    async def main(client):
        (output,) = (await client.call("ModelInfer", infer())).outputs
        assert list(output.shape) == []

    sums.axis = None
    connected(main)


def test_metadata_and_states_are_told(connected):
    async def main(client):
        assert (await client.call("ServerLive")).live
        assert not (await client.call("ServerReady")).ready
        server = await client.call("ServerMetadata")
        assert (server.name, server.version) == ("slipstream", "1.2")
        for name, version, is_ready in [("m", "", True), ("m", "3", False), ("n", "", False)]:
            asked = message("ModelReadyRequest")(name=name, version=version)
            assert (await client.call("ModelReady", asked)).ready is is_ready
        model = await client.call("ModelMetadata", message("ModelMetadataRequest")(name="m"))
        assert (model.name, list(model.versions), model.platform) == ("m", ["1", "2"], "slipstream")
        tensors = [(each.name, each.datatype, list(each.shape))
                   for each in (*model.inputs, *model.outputs)]  # fmt: skip
        assert tensors == [("x", "FP32", [-1, 2]), ("y", "FP32", [-1])]

    connected(main)


def test_only_health_needs_no_token(connected):
    async def main(client):
        metadata = (("authorization", f"Bearer {'t' * 16}"),)
        assert (await client.call("ServerLive")).live
        await client.call("ServerReady")
        for name in ("ServerMetadata", "ModelReady", "ModelMetadata", "ModelInfer"):
            code, words, _ = await client.refused(name)
            assert (code, "a token is needed" in words) == ("UNAUTHENTICATED", True)
        await client.call("ServerMetadata", metadata=metadata)

    connected(main, tokens=(b"t" * 16,))


BYTES_CONTENTS = infer("BYTES", raw=None)
BYTES_CONTENTS.inputs[0].contents.bytes_contents.extend([b"a"] * 3)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (infer(names=("x", "x")), "there are 1 raw contents for 2 inputs"),
        (infer(names=("x", "x"), raw=None, shape=[0]), "the input 'x' is given twice"),
        (infer(shape=[-1, 2]), r"input 'x' has the shape \[-1, 2\]"),
        (infer(shape=[2, 3]), r"input 'x' has 16 bytes; FP32 of the shape \[2, 3\] has 24"),
        (infer(raw=None), r"input 'x' has 0 numbers; the shape \[2, 2\] needs 4"),
        (infer("FP16", raw=None),
         "input .x. is .FP16.; in contents are BOOL, INT8, .*, FP64; other datatypes must be raw"),
        (BYTES_CONTENTS, r"input 'x' has 3 elements; its shape is \[2, 2\]"),
        (infer(names=("z",)), "input 'x' is missing, there is no input 'z'"),
    ],
)  # fmt: skip
def test_wrong_calls_say_how(connected, asked, words):
    async def main(client):
        code, said, _ = await client.refused("ModelInfer", asked)
        assert code == "INVALID_ARGUMENT"
        assert re.match(words, said)

    connected(main)


@pytest.mark.parametrize(
    "parameter", [{"int64_param": 0}, {"int64_param": -1}, {"bool_param": True}]
)
def test_a_timeout_is_a_number_of_microseconds(connected, parameter):
    async def main(client):
        asked = infer()
        asked.parameters["timeout"].CopyFrom(message("InferParameter")(**parameter))
        code, words, _ = await client.refused("ModelInfer", asked)
        assert code == "INVALID_ARGUMENT"
        assert words == "timeout has to be an integer: microseconds, 1 and more"

    connected(main)


@pytest.mark.parametrize("kind", ["int64_param", "uint64_param"])
@pytest.mark.parametrize(("micros", "is_in_time"), [(1, False), (50_000_000, True)])
def test_a_call_has_the_time_that_it_says(connected, sums, kind, micros, is_in_time):
    sums.seconds = 1.0

    async def main(client):
        asked = infer()
        asked.parameters["timeout"].CopyFrom(message("InferParameter")(**{kind: micros}))
        if is_in_time:
            await client.call("ModelInfer", asked)
            return
        code, words, trailing = await client.refused("ModelInfer", asked)
        assert code == "RESOURCE_EXHAUSTED"
        assert words.startswith("the request would take about 1 s, but 0 s are left")
        assert trailing["retry-after"] == "2"

    connected(main)


def test_the_deadline_of_grpc_is_the_requests(connected, sums):
    sums.seconds = 100.0

    async def main(client):
        code, words, trailing = await client.refused("ModelInfer", infer(), timeout=40)
        # 150 s, as runs may take half as much again, and 34 s of 40 s that are for the run.
        assert (code, trailing["retry-after"]) == ("RESOURCE_EXHAUSTED", "117")
        assert "but 3" in words

    connected(main)


def test_a_message_that_cannot_be_read_is_refused(connected):
    async def main(client):
        code, words, trailing = await client.refused("ModelInfer", raw=b"\xff")
        assert (code, "retry-after" in trailing) == ("INVALID_ARGUMENT", False)
        assert words.startswith("the message cannot be read: ")
        code, _, _ = await client.refused("ModelInfer", infer(model="o"))
        assert code == "NOT_FOUND"
        code, _, trailing = await client.refused("ModelInfer", infer(model="n"))
        assert (code, trailing["retry-after"]) == ("UNAVAILABLE", "1")

    connected(main)
