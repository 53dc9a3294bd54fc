"""REST over connections of this process: status, header and body, letter by letter."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

pytest.importorskip("starlette")

import uvicorn
from uvicorn.server import ServerState

from slipstream.serve.access import Tokens
from slipstream.serve.handler import RequestHandler
from slipstream.serve.metrics import CONTENT_TYPE, Metrics
from slipstream.serve.protocol.bodies import BodyMemory
from slipstream.serve.protocol.http import Protocol
from slipstream.serve.rest import RestApi

BODY, TOGETHER = 20_000, 30_000
PARENT = f"00-{'ab' * 16}-{'cd' * 8}-01"
INFER = "/v2/models/m/infer"
ASKED = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
TENSORS = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
}


class Client:
    """A connection, and what is known of the server."""

    def __init__(self, reader, writer, models, records, bodies):
        self.reader, self.writer, self.models = reader, writer, models
        self.records, self.bodies = records, bodies

    def send(self, method, path, body=b"", **fields):
        if body:
            fields.setdefault("content-length", len(body))
        lines = [f"{method} {path} HTTP/1.1", "host: x"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def read(self):
        """Return status, fields and body of the next answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines)
        body = await self.reader.readexactly(int(fields.get("content-length", 0)))
        return int(first.split(" ")[1]), fields, body

    async def ask(self, method, path, body=b"", **fields):
        self.send(method, path, body, **fields)
        return await self.read()

    async def infer(self, content, path=INFER, **fields):
        return await self.ask("POST", path, json.dumps(content).encode(), **fields)


@pytest.fixture
def connected(repository):
    """Run a coroutine function with a client of a server of m, versions 1 and 2, and of n."""

    def run(main, *, tokens=(), seconds=60.0, is_whole=False):
        async def start():
            models, records = repository("m=a.slip", "m=b.slip@0%", "n=c.slip"), []
            for each in models.specs[: 3 if is_whole else 2]:
                await models.load(each.name, each.version)
            metrics, bodies = Metrics(models), BodyMemory(BODY, TOGETHER)
            handler = RequestHandler(models, seconds, [metrics.add, records.append])
            app = RestApi(handler, bodies, metrics, Tokens(tokens), "1.2")
            config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None)
            config.load()
            given = {"config": config, "server_state": ServerState(), "app_state": {}}
            loop = asyncio.get_running_loop()
            server = await loop.create_server(lambda: Protocol(**given), "127.0.0.1", 0)
            pair = await asyncio.open_connection(*server.sockets[0].getsockname())
            try:
                await main(Client(*pair, models, records, bodies))
            finally:
                pair[1].close()
                server.close()

        asyncio.run(asyncio.wait_for(start(), 60))

    return run


def test_a_result_in_json_has_what_was_asked(connected):
    async def main(client):
        fields = {"traceparent": PARENT, "tracestate": "v=1"}
        status, found, body = await client.infer({**ASKED, "id": "7"}, **fields)
        assert (status, found["content-type"]) == (200, "application/json")
        assert {name: found[name] for name in fields} == fields
        assert "inference-header-content-length" not in found
        assert json.loads(body) == {
            "model_name": "m", "model_version": "1", "id": "7",
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [3.0]}],
        }  # fmt: skip
        (record,) = client.records
        assert record.num_bytes == len(json.dumps({**ASKED, "id": "7"}))
        assert client.bodies.num_bytes == 0

    connected(main)


def test_a_result_in_bytes_says_where_they_begin(connected):
    async def main(client):
        asked = {**ASKED, "parameters": {"binary_data_output": True}}
        path = "/v2/models/m/versions/2/infer"
        status, found, body = await client.infer(asked, path)
        assert (status, found["content-type"]) == (200, "application/octet-stream")
        length = int(found["inference-header-content-length"])
        said = json.loads(body[:length])
        assert (said["model_version"], "id" in said) == ("2", False)
        assert said["outputs"][0]["parameters"] == {"binary_data_size": 4}
        np.testing.assert_array_equal(np.frombuffer(body[length:], np.float32), [3.0])

    connected(main)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/v2", {"name": "slipstream", "version": "1.2", "extensions": ["binary_tensor_data"]}),
        ("/v2/models/m",
         {"name": "m", "versions": ["1", "2"], "platform": "slipstream", **TENSORS}),
        ("/v2/models/m/versions/2",
         {"name": "m", "versions": ["1", "2"], "platform": "slipstream", **TENSORS}),
    ],
)  # fmt: skip
def test_metadata_are_told(connected, path, content):
    async def main(client):
        status, _, body = await client.ask("GET", path)
        assert (status, json.loads(body)) == (200, content)

    connected(main)


@pytest.mark.parametrize(
    ("path", "is_whole", "status"),
    [
        ("/v2/health/live", False, 200), ("/v2/health/ready", False, 503),
        ("/v2/health/ready", True, 200), ("/v2/models/m/ready", False, 200),
        ("/v2/models/m/versions/2/ready", False, 200), ("/v2/models/n/ready", False, 503),
        ("/v2/models/n/versions/1/ready", True, 200), ("/v2/models/m/versions/3/ready", True, 404),
        ("/v2/models/o", True, 404), ("/v3", True, 404), (INFER, True, 405),
    ],
)  # fmt: skip
def test_paths_have_their_status(connected, path, is_whole, status):
    async def main(client):
        found, fields, _ = await client.ask("GET", path)
        assert found == status
        assert fields.get("allow") == ("POST" if status == 405 else None)
        assert fields.get("retry-after") == (
            "1" if status == 503 and "health" not in path else None
        )

    connected(main, is_whole=is_whole)


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/v2/nothing", 404, "there is no '/v2/nothing'"),
        ("GET", "/v2/models/m/config", 404, "there is no '/v2/models/m/config'"),
        ("POST", "/v2/repository/index", 404, "there is no '/v2/repository/index'"),
        ("POST", "/v2/health/live", 405, "'/v2/health/live': Method Not Allowed"),
        ("DELETE", "/v2/models/m", 405, "'/v2/models/m': Method Not Allowed"),
    ],
)  # fmt: skip
def test_paths_that_are_not_there_are_refused_in_json(connected, method, path, status, words):
    async def main(client):
        found, fields, body = await client.ask(method, path)
        assert (found, json.loads(body)) == (status, {"error": words})
        assert ("allow" in fields) == (status == 405)

    connected(main)


@pytest.mark.parametrize(
    ("encoding", "status"), [("gzip", 415), ("br", 415), ("gzip, identity", 415), ("Identity", 200)]
)
def test_a_body_that_is_encoded_is_refused(connected, encoding, status):
    async def main(client):
        found, _, body = await client.infer(ASKED, content_encoding=encoding)
        assert found == status
        if status == 415:
            words = f"the body is encoded as {encoding!r}; allowed: identity"
            assert json.loads(body) == {"error": words}
        assert (await client.infer(ASKED))[0] == 200

    connected(main)


def test_numbers_are_those_of_prometheus(connected):
    async def main(client):
        await client.infer(ASKED)
        status, fields, body = await client.ask("GET", "/metrics")
        assert (status, fields["content-type"]) == (200, CONTENT_TYPE)
        assert b'slipstream_run_rows_sum{model="m",version="1"} 1.0' in body

    connected(main)


@pytest.mark.parametrize(
    ("method", "path", "is_open"),
    [
        ("POST", INFER, False), ("GET", "/v2", False), ("GET", "/metrics", False),
        ("GET", "/v2/models/m/ready", False), ("GET", "/v2/health/live", True),
        ("GET", "/v2/health/ready", True),
    ],
)  # fmt: skip
def test_only_health_needs_no_token(connected, method, path, is_open):
    async def main(client):
        status, fields, body = await client.ask(method, path)
        assert (status != 401) == is_open
        if not is_open:
            assert fields["www-authenticate"] == "Bearer"
            assert "a token is needed" in json.loads(body)["error"]
        status, _, _ = await client.ask(method, path, authorization=f"Bearer {'t' * 16}")
        assert status != 401

    connected(main, tokens=(b"t" * 16,))


def test_bodies_are_as_large_as_is_allowed(connected):
    async def main(client):
        content = json.dumps(ASKED).encode()
        status, _, _ = await client.ask("POST", INFER, content.ljust(BODY))
        assert status == 200
        status, fields, body = await client.ask("POST", INFER, content.ljust(BODY + 1))
        assert (status, "retry-after" in fields) == (413, False)
        assert json.loads(body) == {"error": "the body has 20001 bytes; at most 20000 are allowed"}
        assert [each.outcome for each in client.records] == ["ok", "too_large"]

    connected(main)


@pytest.mark.parametrize("size", [BODY - 1, BODY, BODY + 1])
def test_bodies_in_pieces_are_counted_too(connected, size):
    async def main(client):
        content = json.dumps(ASKED).encode().ljust(size)
        half = size // 2
        pieces = [b"%x\r\n%b\r\n" % (len(each), each) for each in (content[:half], content[half:])]
        client.send("POST", INFER, transfer_encoding="chunked")
        client.writer.write(b"".join([*pieces, b"0\r\n\r\n"]))
        status, _, _ = await client.read()
        assert status == (200 if size <= BODY else 413)
        assert client.bodies.num_bytes == 0

    connected(main)


def test_no_more_bytes_are_held_than_all_may_have(connected):
    async def main(client):
        with client.bodies.reserve() as held:
            held.add(TOGETHER - BODY)
            assert (await client.ask("POST", INFER, b" " * BODY))[0] == 400
            held.add(1)
            status, fields, body = await client.ask("POST", INFER, b" " * BODY)
            assert (status, fields["retry-after"]) == (429, "1")
            words = "requests already take 10001 bytes of memory; send it again later"
            assert json.loads(body) == {"error": words}
        assert client.bodies.num_bytes == 0

    connected(main)


def test_a_body_that_does_not_come_is_late_and_the_connection_ends(connected):
    async def main(client):
        client.send("POST", INFER, content_length=BODY)
        status, fields, body = await client.read()
        assert (status, fields["connection"]) == (504, "close")
        words = "the body had not arrived after 0.05 s, the longest time allowed"
        assert json.loads(body) == {"error": words}
        assert await client.reader.read() == b""
        assert client.bodies.num_bytes == 0

    connected(main, seconds=0.05)


def test_a_client_that_asks_for_the_end_gets_it_after_its_answer(connected):
    async def main(client):
        _, fields, _ = await client.infer(ASKED)
        assert "connection" not in fields
        status, fields, _ = await client.infer(ASKED, connection="close")
        assert (status, fields["connection"]) == (200, "close")
        assert await client.reader.read() == b""

    connected(main)


def test_a_client_that_hangs_up_before_its_body_is_gone(connected):
    async def main(client):
        client.send("POST", INFER, content_length=BODY)
        client.writer.write(b"{")
        client.writer.close()
        while not client.records:
            await asyncio.sleep(0)
        (record,) = client.records
        assert (record.outcome, record.error) == ("gone", "the client hung up")
        assert client.bodies.num_bytes == 0

    connected(main)


def test_a_failure_is_told_without_what_failed(connected, sums):
    async def main(client):
        sums.fault = ValueError("secret")
        status, _, body = await client.infer(ASKED)
        assert status == 500
        assert json.loads(body) == {"error": "the model 'm' failed; see the log"}

    connected(main)


def test_a_busy_model_says_after_how_many_whole_seconds_to_come_back(connected, sums):
    sums.seconds = 100.0

    async def main(client):
        status, fields, body = await client.infer(ASKED)
        # 150 s, as runs may take half as much again, and 51 s of 60 s that are for the run.
        assert (status, fields["retry-after"]) == (429, "100")
        assert json.loads(body)["error"].startswith("the request would take about 100 s, but 5")

    connected(main)


@pytest.mark.parametrize("asks_more", [False, True])
def test_a_request_that_a_busy_model_cannot_answer_is_refused_before_its_body(
    connected, sums, asks_more
):
    sums.seconds = 10.0

    async def main(client):
        tensor = {**ASKED["inputs"][0], "data": None, "parameters": {"binary_data_size": 8}}
        timeout = 30_000_000 if asks_more else 5_000_000
        head = json.dumps({"inputs": [tensor], "parameters": {"timeout": timeout}}).encode()
        fields = {"inference_header_content_length": len(head)}
        client.send("POST", INFER, content_length=BODY, **fields)
        client.writer.write(head)
        if asks_more:
            client.writer.write(b"\0" * (BODY - len(head)))
            assert (await client.read())[0] == 400  # the body was read, and is too long
            return
        status, fields, _ = await client.read()
        assert (status, fields["retry-after"]) == (429, "11")
        assert client.records[0].num_bytes == client.bodies.num_bytes == 0
        client.writer.write(b"\0" * (BODY - len(head)))
        assert (await client.infer(ASKED))[0] == 200  # by the same connection

    connected(main)


def test_a_client_that_hangs_up_while_its_model_runs_is_gone_and_others_are_answered(
    connected, sums
):
    async def main(client):
        sums.held = asyncio.Event()
        client.send("POST", INFER, json.dumps(ASKED).encode())
        while not client.models.get("m", "1").batcher.running:
            await asyncio.sleep(0)
        client.writer.close()
        while not client.records:
            await asyncio.sleep(0)
        (record,) = client.records
        assert (record.outcome, record.error) == ("gone", "the client hung up")
        await client.models.get("m", "1").batcher.drained()
        assert client.bodies.num_bytes == 0

    connected(main)


def test_a_client_that_hangs_up_after_its_answer_was_answered(connected):
    async def main(client):
        assert (await client.infer(ASKED))[0] == 200
        client.writer.close()
        await client.writer.wait_closed()
        for _ in range(10):
            await asyncio.sleep(0)
        assert [each.outcome for each in client.records] == ["ok"]

    connected(main)


@pytest.mark.parametrize("length", ["12x", "²", "-1"])
def test_a_length_that_is_no_number_is_refused(connected, length):
    async def main(client):
        client.send("POST", INFER, content_length=length)
        assert (await client.reader.read()).startswith(b"HTTP/1.1 400 ")

    connected(main)
