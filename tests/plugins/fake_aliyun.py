"""A fake of Alibaba Cloud: a server for those actions of ECS, VPC and NAS that we call.

It is no emulator of the vendor: its answers follow the models of the official SDK and the public
documentation. It checks signatures and clocks, answers a repeated ClientToken with its first
answer, lists page by page, lets resources take time, and deletes nothing that others need. `/fault`
makes calls fail, `/clock` sets its time, `/currency` that of its prices, and `/requests` tells the
parameters of all calls. It boots no machine; tests put ssh hosts of their own in their place.

`/machines` lists the machines for those hosts, and `/end` takes one away. Run it with a port and
an address: `python fake_aliyun.py 8080 127.0.0.1`.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from fake_aliyun_region import Region
from fake_aliyun_resources import RefusalError

from slipstream.cluster.providers.aliyun.signing import canonical_query, signature_of

KEY_ID, KEY_SECRET = "LTAIexample", "keySecretOfTheFake"
# Difference of clocks that Alibaba Cloud accepts.
MAX_SKEW_SECONDS = 900.0


class FakeAliyun(ThreadingHTTPServer):
    """The server, with one region and the faults that tests asked for."""

    daemon_threads = True

    def __init__(self, port: int, address: str) -> None:
        super().__init__((address, port), FakeAliyunHandler)
        self.lock = threading.Lock()
        self.region = Region()
        self.faults: dict[str, list[str]] = {}
        self.requests: list[dict[str, str]] = []
        self.answers: dict[str, tuple[str, Any]] = {}

    def answer(self, action: str, parameters: dict[str, str]) -> Any:
        """Return the answer of one call.

        Raises:
            RefusalError: the call fails.
        """
        with self.lock:
            self.requests.append({"Action": action, **parameters})
            faults = self.faults.get(action, [])
            if faults:
                raise RefusalError(faults.pop(0), "a test asked for this failure")
            token = parameters.get("ClientToken", "")
            digest = hashlib.sha256(repr((action, sorted(parameters.items()))).encode()).hexdigest()
            if token in self.answers:
                first, answer = self.answers[token]
                if first != digest:
                    raise RefusalError(
                        "IdempotentParameterMismatch", "the token had other parameters"
                    )
                return answer
            answer = self.region.answer(action, parameters)
            if token:
                self.answers[token] = digest, answer
            return answer


class FakeAliyunHandler(BaseHTTPRequestHandler):
    """One request."""

    server: FakeAliyun
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet for head and body

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = urlsplit(self.path)
        if url.path != "/":
            self.control(url.path, json.loads(body or b"null"))
            return
        parameters = dict(parse_qsl(url.query, keep_blank_values=True))
        try:
            self.check(parameters)
            self.reply(200, self.server.answer(self.headers["x-acs-action"], parameters))
        except RefusalError as refusal:
            status = 503 if refusal.code.startswith("ServiceUnavailable") else 400
            self.reply(status, {"Code": refusal.code, "Message": str(refusal)})

    def check(self, parameters: Mapping[str, str]) -> None:
        """Refuse a request whose key, signature or time is wrong."""
        _, _, authorization = self.headers["authorization"].partition(" ")
        fields = dict(part.split("=", 1) for part in authorization.split(","))
        if fields["Credential"] != KEY_ID:
            raise RefusalError("InvalidAccessKeyId.NotFound", "Specified access key is not found.")
        headers = {name: self.headers[name] for name in fields["SignedHeaders"].split(";")}
        signature = signature_of(headers, canonical_query(parameters), KEY_SECRET)
        if fields["Signature"] != signature:
            raise RefusalError("SignatureDoesNotMatch", "The signature does not match.")
        sent = datetime.strptime(headers["x-acs-date"], "%Y-%m-%dT%H:%M:%SZ")
        if abs(sent.replace(tzinfo=timezone.utc).timestamp() - time.time()) > MAX_SKEW_SECONDS:
            raise RefusalError("InvalidTimeStamp.Expired", "The specified timestamp is expired.")

    def control(self, path: str, value: Any) -> None:
        """Do what a test asks for."""
        with self.server.lock:
            if path == "/fault":
                self.server.faults[value["action"]] = [value["code"]] * value.get("times", 1)
                self.reply(200, {})
            elif path == "/clock":
                self.server.region.release_until(value["now"])
                self.reply(200, {})
            elif path == "/currency":
                self.server.region.currency = value["currency"]
                self.reply(200, {})
            elif path == "/machines":
                self.reply(200, self.server.region.machines())
            elif path == "/end":
                self.server.region.end(value["external_id"])
                self.reply(200, {})
            elif path == "/requests":
                self.reply(200, self.server.requests)
            else:
                self.reply(404, {})

    def reply(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the output of tests short."""


if __name__ == "__main__":
    with FakeAliyun(int(sys.argv[1]), sys.argv[2]) as fake:
        fake.serve_forever()
