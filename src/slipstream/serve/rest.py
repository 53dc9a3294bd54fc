"""REST: the Open Inference Protocol, version 2, as an ASGI application."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Generator
from contextlib import contextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from slipstream.serve.access import Tokens, field_of
from slipstream.serve.handler import RequestHandler
from slipstream.serve.metrics import CONTENT_TYPE, Metrics
from slipstream.serve.page import OPEN_PATHS
from slipstream.serve.protocol.bodies import BodyMemory, read
from slipstream.serve.protocol.http import LINK, RequestConnection
from slipstream.serve.protocol.messages import JSON_LENGTH, build_response, parse_call, timeout_of
from slipstream.serve.record import RequestRecord
from slipstream.serve.refusals import Reason, RequestRefusedError

_PLATFORM = "slipstream"
_INFER = re.compile(r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?/infer")
_OPEN = "/v2/health/"
_EXTENSIONS = ["binary_tensor_data"]


class RestApi:
    """The ASGI application of REST.

    Args:
        handler: Object that executes the requests.
        bodies: Limits and counter of the memory that request bodies take.
        metrics: Metrics of the server, shown at `/metrics`.
        tokens: Tokens that grant access; the health paths need no token.
        version: Version of the server.
    """

    def __init__(
        self,
        handler: RequestHandler,
        bodies: BodyMemory,
        metrics: Metrics,
        tokens: Tokens,
        version: str,
    ) -> None:
        self._handler, self._bodies, self._metrics = handler, bodies, metrics
        self._tokens, self._version = tokens, version
        self._repository = handler.repository
        model = "/v2/models/{model}"
        versions = "/v2/models/{model}/versions/{version}"
        self.others = Starlette(
            routes=[
                *(Route(f"{each}/ready", self._model_ready) for each in (model, versions)),
                *(Route(each, self._model) for each in (model, versions)),
                Route("/v2/models", self._models),
                Route("/v2/health/live", self._live),
                Route("/v2/health/ready", self._ready),
                Route("/v2", self._server),
                Route("/metrics", self._numbers),
            ],
            exception_handlers={RequestRefusedError: _refused, HTTPException: _failed},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request's token before its body is read, and answer the request.

        A request for a result bypasses Starlette, whose routing takes as long as a run of a small
        model.
        """
        if self._repository.is_ending:
            scope["extensions"][LINK].close_after()
        try:
            self._check_token(scope)
            match = _INFER.fullmatch(scope["path"])
            if match is None:
                await self.others(scope, receive, send)
                return
            if scope["method"] == "POST":
                await self._infer(match["model"], match["version"] or "", scope, receive)
                return
            response = Response(status_code=405, headers={"allow": "POST"})
        except RequestRefusedError as error:
            response = await _refused(Request(scope), error)
        await response(scope, receive, send)

    def _check_token(self, scope: Scope) -> None:
        if scope["path"] not in OPEN_PATHS and not scope["path"].startswith(_OPEN):
            self._tokens.check(field_of(scope["headers"], b"authorization"))

    async def _infer(self, model: str, version: str, scope: Scope, receive: Receive) -> None:
        fields = {name.decode("latin-1"): each.decode("latin-1") for name, each in scope["headers"]}
        link: RequestConnection = scope["extensions"][LINK]
        encoding = fields.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise RequestRefusedError(
                Reason.ENCODED,
                f"the body is encoded as {encoding[:64]!r}; allowed: identity",
            )
        with self._handler.request("rest", model, version, fields) as active:
            # In overload most requests are refused, and reading their bodies would take time from
            # the runs.
            active.check_admission(timeout_of(link.begun, fields.get(JSON_LENGTH)))
            with self._bodies.reserve() as reservation:
                body = await read(fields, link, receive, reservation, active.seconds)
                active.record.num_bytes = len(body)
                call = parse_call(body, fields.get(JSON_LENGTH))
                with _unless_gone(link):
                    done = await active.answer(call)
            record = active.record
            classes = active.served.manifest.classes
            pieces, length = build_response(
                call, record.model, record.version, done.outputs, classes
            )
            # The request is counted and logged after the client has received its answer.
            await link.answer(_fields(record, length), pieces)

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

    async def _models(self, _: Request) -> Response:
        return JSONResponse({"models": self._repository.names})

    async def _model_ready(self, request: Request) -> Response:
        self._repository.find(request.path_params["model"], request.path_params.get("version", ""))
        return Response(status_code=503 if self._repository.is_ending else 200)

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


def _fields(record: RequestRecord, json_length: int | None) -> Generator[tuple[bytes, bytes]]:
    """Yield the header fields of the response that carries a result."""
    if json_length is None:
        yield b"content-type", b"application/json"
    else:
        yield b"content-type", b"application/octet-stream"
        yield JSON_LENGTH.encode(), b"%d" % json_length
    for name, value in record.trace.items():
        yield name.encode(), value.encode("latin-1")


@contextmanager
def _unless_gone(link: RequestConnection) -> Generator[None]:
    """Cancel the work inside the context if the client hangs up."""
    task = asyncio.current_task()
    assert task is not None
    gone = False

    def give_up() -> None:
        nonlocal gone
        gone = True
        task.cancel()

    link.when_gone(give_up)
    try:
        yield
    except asyncio.CancelledError as error:
        if not gone:
            raise
        raise RequestRefusedError(Reason.GONE, "the client hung up") from error
    finally:
        link.when_gone(None)


async def _failed(request: Request, error: Exception) -> Response:
    """Return a Starlette error as a response in the protocol's form."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:128]
    words = f"there is no {path!r}" if error.status_code == 404 else f"{path!r}: {error.detail}"
    return JSONResponse(
        {"error": words}, status_code=error.status_code, headers=dict(error.headers or {})
    )


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestRefusedError)
    headers: dict[str, str] = {}
    if error.reason is Reason.UNAUTHENTICATED:
        headers["www-authenticate"] = "Bearer"
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after)))
    return JSONResponse({"error": str(error)}, status_code=error.reason.status, headers=headers)
