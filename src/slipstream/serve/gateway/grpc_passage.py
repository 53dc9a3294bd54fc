"""gRPC through the gateway: calls are passed on as bytes, without a look at their messages."""

# grpcio has few types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from slipstream.serve.access import Tls, Tokens
from slipstream.serve.gateway.dispatcher import Dispatcher
from slipstream.serve.gateway.replica_server import ReplicaServer, ReplicaState
from slipstream.serve.gateway.report import AnsweredRequest
from slipstream.serve.gateway.upstream import AnswerLateError, ReplicaLostError
from slipstream.serve.protocol.grpc_messages import SERVICE, message
from slipstream.serve.refusals import RequestRefusedError
from slipstream.serve.server import listening

_OK = grpc.StatusCode.OK
_LOST = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})
_REFUSED = frozenset({grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED})
# Fields of a call that the gateway and its replicas set on their own.
_OWN_FIELDS = ("authorization", "user-agent")

Metadata = Sequence[tuple[str, "str | bytes"]]


@dataclass(slots=True, kw_only=True)
class GrpcAnswer:
    """The result of a call.

    Args:
        body: Bytes of the message; b"" if there is none.
        code: Status of the call.
        details: Text of the error.
        initial: Metadata before the message.
        trailing: Metadata after the message.
        replica: Name of the replica.
    """

    body: bytes = b""
    code: Any = _OK
    details: str = ""
    initial: Metadata = ()
    trailing: Metadata = ()
    replica: str = ""


class GrpcExchange:
    """A call of a client; see `ReplicaExchange`.

    Args:
        method: Full name of the method.
        body: Bytes of the message.
        fields: Metadata of the call.
        seconds: Time in seconds that the client gives; None if it sets no deadline.
    """

    def __init__(self, method: str, body: bytes, fields: Metadata, seconds: float | None) -> None:
        self._method, self._body, self._seconds = method, body, seconds
        self._fields = tuple(each for each in fields if each[0] not in _OWN_FIELDS)
        self.begin = asyncio.get_running_loop().time()

    def own_timeout(self) -> float | None:
        """Return the time in seconds that the client gives; None if it sets no deadline."""
        return self._seconds

    async def send(self, replica: ReplicaServer, deadline: float) -> GrpcAnswer:
        """Send the call to a replica; see `ReplicaExchange.send`."""
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            raise AnswerLateError("the deadline passed")
        token = ("authorization", f"Bearer {replica.pool.address.token}")
        call = replica.channel.unary_unary(self._method)(
            self._body, timeout=left, metadata=(*self._fields, token)
        )
        try:
            body = await call
        except grpc.aio.AioRpcError as error:
            if error.code() in _LOST:
                raise ReplicaLostError(
                    f"the call to {replica.name} ended: {error.details()}"
                ) from error
            return GrpcAnswer(
                code=error.code(),
                details=error.details() or "",
                trailing=tuple(error.trailing_metadata() or ()),
                replica=replica.name,
            )
        except asyncio.CancelledError as error:
            # The gateway closes the channel of a replica that is lost, and that cancels its calls.
            if replica.state is ReplicaState.ENDED:
                raise ReplicaLostError(f"{replica.name} has ended") from error
            raise
        initial = tuple(await call.initial_metadata() or ())
        return GrpcAnswer(body=body, initial=initial, replica=replica.name)

    def is_refusal(self, answer: GrpcAnswer) -> bool:
        """Return whether the replica refuses what another one may do."""
        return answer.code in _REFUSED


class GrpcPassage(grpc.GenericRpcHandler):
    """The handler of all calls to a gateway.

    Args:
        dispatcher: Dispatcher of the calls.
        tokens: Tokens that grant access; the health methods need none.
        is_ready: Function that returns whether the gateway is ready.
        answered: Function that is called with each call that was passed on.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        tokens: Tokens,
        is_ready: Callable[[], bool],
        answered: Callable[[AnsweredRequest], None],
    ) -> None:
        self._dispatcher, self._tokens = dispatcher, tokens
        self._answered = answered
        self._own = {
            f"/{SERVICE}/ServerLive": lambda: message("ServerLiveResponse")(live=True),
            f"/{SERVICE}/ServerReady": lambda: message("ServerReadyResponse")(ready=is_ready()),
        }

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a method."""
        method: str = handler_call_details.method
        own = self._own.get(method)
        if own is not None:
            return grpc.unary_unary_rpc_method_handler(partial(_own_answer, own))
        return grpc.unary_unary_rpc_method_handler(partial(self._pass_on, method))

    async def _pass_on(self, method: str, body: bytes, context: Any) -> bytes:
        fields: Metadata = tuple(context.invocation_metadata() or ())
        exchange = GrpcExchange(method, body, fields, context.time_remaining())
        answer = await self._result(exchange, dict(fields))
        seconds = asyncio.get_running_loop().time() - exchange.begin
        self._answered(
            AnsweredRequest(
                protocol="grpc", path=method, status=answer.code.name, num_bytes=len(body),
                seconds=seconds, replica=answer.replica,
            )
        )  # fmt: skip
        if answer.code is not _OK:
            await context.abort(answer.code, answer.details, answer.trailing)
        if answer.initial:
            await context.send_initial_metadata(answer.initial)
        return answer.body

    async def _result(self, exchange: GrpcExchange, fields: dict[str, Any]) -> GrpcAnswer:
        try:
            self._tokens.check(str(fields.get("authorization", "")))
            return await self._dispatcher.answer(exchange)
        except RequestRefusedError as error:
            after = error.retry_after
            trailing = () if after is None else (("retry-after", str(max(1, math.ceil(after)))),)
            code = grpc.StatusCode[error.reason.grpc]
            return GrpcAnswer(code=code, details=str(error), trailing=trailing)


async def _own_answer(build: Callable[[], Any], _: bytes, __: Any) -> bytes:
    return build().SerializeToString()


async def start_grpc(
    passage: GrpcPassage, host: str, port: int, tls: Tls | None, body: int
) -> tuple[Any, int]:
    """Start a gRPC server; return it with its port.

    Args:
        passage: Handler of the calls.
        host: Address to listen on.
        port: TCP port; 0 for any free port.
        tls: Certificate and key of the gateway; None for no encryption.
        body: Largest size of a message in bytes.

    Raises:
        OSError: the address cannot be listened on.
    """
    listening(host, port).close()  # raises an error with the reason, which gRPC does not report
    options = [("grpc.max_receive_message_length", body), ("grpc.so_reuseport", 0)]
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers((passage,))
    if tls is None:
        chosen = server.add_insecure_port(f"{host}:{port}")
    else:
        pair = tls.key.read_bytes(), tls.certificate.read_bytes()
        credentials = grpc.ssl_server_credentials([pair])
        chosen = server.add_secure_port(f"{host}:{port}", credentials)
    await server.start()
    return server, chosen
