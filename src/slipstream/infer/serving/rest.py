"""REST: the Open Inference Protocol, version 2, as an ASGI application."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from slipstream.infer.serving.access import Tokens, field_of
from slipstream.infer.serving.messages import JSON_LENGTH, call_of, response_of
from slipstream.infer.serving.metrics import CONTENT_TYPE, Metrics
from slipstream.infer.serving.page import OPEN_PATHS
from slipstream.infer.serving.refusals import Reason, RefusedError
from slipstream.infer.serving.requests import Desk
from slipstream.infer.serving.requests import Request as Asked

_PLATFORM = "slipstream"
_PROMPT = 0.02  # seconds
_OPEN = "/v2/health/"
_EXTENSIONS = ["binary_tensor_data"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestLimits:
    """What a request may be.

    Args:
        body: bytes of it.
        bodies: bytes of all that are held at a time.
    """

    body: int = 64 << 20
    bodies: int = 512 << 20


class Rest:
    """Answers requests.

    Args:
        desk: where requests come in.
        limits: of requests.
        metrics: that it shows.
        tokens: that let requests in; health is told to everybody.
        version: of the server.
    """

    def __init__(
        self, desk: Desk, limits: RestLimits, metrics: Metrics, tokens: Tokens, version: str
    ) -> None:
        self._desk, self._limits, self._metrics, self._version = desk, limits, metrics, version
        self._tokens = tokens
        self._repository = desk.repository
        self._held = 0

    def application(self) -> Starlette:
        """Returns the ASGI application."""
        model = "/v2/models/{model}"
        versions = "/v2/models/{model}/versions/{version}"
        routes = [
            *(Route(f"{each}/infer", self._infer, methods=["POST"]) for each in (model, versions)),
            *(Route(f"{each}/ready", self._model_ready) for each in (model, versions)),
            *(Route(each, self._model) for each in (model, versions)),
            Route("/v2/health/live", self._live),
            Route("/v2/health/ready", self._ready),
            Route("/v2", self._server),
            Route("/metrics", self._numbers),
        ]
        return Starlette(
            routes=routes,
            exception_handlers={RefusedError: _refused},
            middleware=[Middleware(_Guard, self._tokens)],
        )

    async def _infer(self, request: Request) -> Response:
        model, version = request.path_params["model"], request.path_params.get("version", "")
        with self._desk.request("rest", model, version, request.headers) as asked:
            body, size = await self._body(request)
            try:
                answer = self._answer(asked, body, request.headers.get(JSON_LENGTH))
                return await _unless_gone(request, answer)
            finally:
                self._held -= size

    async def _answer(self, asked: Asked, body: memoryview, json_length: str | None) -> Response:
        record = asked.record
        record.num_bytes = len(body)
        call = call_of(body, json_length)
        done = await asked.answer(call)
        pieces, length = response_of(call, record.model, record.version, done.outputs)
        headers = dict(record.trace)
        if length is None:
            return Response(pieces[0], headers=headers, media_type="application/json")
        headers[JSON_LENGTH] = str(length)
        return Response(b"".join(pieces), headers=headers, media_type="application/octet-stream")

    async def _body(self, request: Request) -> tuple[memoryview, int]:
        """The body, and the bytes that are held for it: as many as it says it has, or has."""
        said = request.headers.get("content-length", "")
        size = int(said) if said.isascii() and said.isdecimal() else 0
        self._hold(size, 0)
        pieces: list[bytes] = []
        have = 0
        try:
            async for piece in request.stream():
                have += len(piece)
                if have > size:
                    self._hold(have - size, size)
                    size = have
                pieces.append(piece)
        except BaseException:
            self._held -= size
            raise
        return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces)), size

    def _hold(self, more: int, before: int) -> None:
        """Counts bytes before they are there; raises RefusedError if they are too many."""
        if before + more > self._limits.body:
            raise RefusedError(
                Reason.TOO_LARGE, f"the body has {before + more} bytes; {self._limits.body} may be"
            )
        if self._held + more > self._limits.bodies:
            raise RefusedError(Reason.BUSY, f"{self._held} bytes of requests are held already", 1.0)
        self._held += more

    async def _model(self, request: Request) -> Response:
        served = self._repository.find(
            request.path_params["model"], request.path_params.get("version", "")
        )
        signature = served.signature
        return JSONResponse(
            {
                "name": served.spec.name,
                "versions": self._repository.versions(served.spec.name),
                "platform": _PLATFORM,
                "inputs": signature.described(signature.inputs),
                "outputs": signature.described(signature.outputs),
            }
        )

    async def _model_ready(self, request: Request) -> Response:
        self._repository.find(request.path_params["model"], request.path_params.get("version", ""))
        return Response()

    async def _live(self, _: Request) -> Response:
        return Response()

    async def _ready(self, _: Request) -> Response:
        return Response(status_code=200 if self._repository.is_ready else 503)

    async def _numbers(self, _: Request) -> Response:
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    async def _server(self, _: Request) -> Response:
        return JSONResponse(
            {"name": "slipstream", "version": self._version, "extensions": _EXTENSIONS}
        )


async def _unless_gone(request: Request, answer: Coroutine[Any, Any, Response]) -> Response:
    """What is answered; it is given up where the client hangs up before."""
    answering = asyncio.ensure_future(answer)
    # Most are answered sooner than it is worth to listen for the client.
    await asyncio.wait({answering}, timeout=_PROMPT)
    if not answering.done():
        leaving = asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not answering.done():
                answering.cancel()
        if not answering.done():
            raise RefusedError(Reason.GONE, "the client hung up")
    return await answering


class _Guard:
    """Lets requests with a token in, before their body is read."""

    def __init__(self, application: ASGIApp, tokens: Tokens) -> None:
        self._application, self._tokens = application, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_open = scope["type"] != "http" or scope["path"] in OPEN_PATHS
        if not (is_open or scope["path"].startswith(_OPEN)):
            try:
                self._tokens.check(field_of(scope["headers"], b"authorization"))
            except RefusedError as error:
                response = await _refused(Request(scope), error)
                await response(scope, receive, send)
                return
        await self._application(scope, receive, send)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    headers: dict[str, str] = {}
    if error.reason is Reason.UNAUTHENTICATED:
        headers["www-authenticate"] = "Bearer"
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after)))
    return JSONResponse({"error": str(error)}, status_code=error.reason.status, headers=headers)
