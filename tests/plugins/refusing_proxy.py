"""A proxy before a server of AWS that refuses calls as AWS would, and keeps all requests."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

_PASSED_ON = ("Authorization", "Content-Type", "X-Amz-Date", "X-Amz-Content-Sha256", "User-Agent")


class RefusingProxy(ThreadingHTTPServer):
    """The proxy, with what tests asked for.

    Args:
        target: Address of the server behind it.
    """

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), RefusingProxyHandler)
        self.target = target
        self.faults: dict[str, list[str]] = {}
        self.bodies: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def refuse(self, action: str, code: str, times: int = 1) -> None:
        """Let the next calls of an action fail with a code."""
        self.faults[action] = [code] * times


class RefusingProxyHandler(BaseHTTPRequestHandler):
    """One request."""

    server: RefusingProxy
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet for head and body

    def pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.bodies.append(f"{self.path} {body.decode(errors='replace')}")
        (action,) = parse_qs(body.decode(errors="replace")).get("Action", [""])
        faults = self.server.faults.get(action, [])
        if faults:
            self.reply(400, "text/xml", error_xml(faults.pop(0)))
            return
        headers = {name: self.headers[name] for name in _PASSED_ON if name in self.headers}
        headers["Host"] = self.headers["Host"]
        request = urllib.request.Request(
            f"{self.server.target}{self.path}", body or None, headers, method=self.command
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                kind = response.headers.get("Content-Type", "text/xml")
                self.reply(response.status, kind, response.read())
        except urllib.error.HTTPError as error:
            with error:
                kind = error.headers.get("Content-Type", "text/xml")
                self.reply(error.code, kind, error.read())

    def do_GET(self) -> None:
        self.pass_on()

    def do_POST(self) -> None:
        self.pass_on()

    def do_PUT(self) -> None:
        self.pass_on()

    def do_DELETE(self) -> None:
        self.pass_on()

    def reply(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the output of tests short."""


def error_xml(code: str) -> bytes:
    """Return an error in the form of EC2."""
    error = f"<Error><Code>{code}</Code><Message>a test asked for this failure</Message></Error>"
    return f"<Response><Errors>{error}</Errors><RequestID>proxy</RequestID></Response>".encode()


@contextmanager
def refusing_proxy(target: str) -> Iterator[RefusingProxy]:
    """Serve before a target; yield the proxy."""
    with RefusingProxy(target) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
