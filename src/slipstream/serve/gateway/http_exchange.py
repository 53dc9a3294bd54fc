"""A request over HTTP, as it is sent to a replica."""

from __future__ import annotations

from slipstream.serve.gateway.downstream import ClientRequest
from slipstream.serve.gateway.replica_server import ReplicaServer
from slipstream.serve.gateway.upstream import HOP_BY_HOP, ReplicaAnswer
from slipstream.serve.protocol.messages import JSON_LENGTH, timeout_of
from slipstream.serve.refusals import Reason, RequestRefusedError

# Statuses with which a replica refuses what another one may do.
_REFUSED = frozenset({Reason.BUSY.status, 502, Reason.UNAVAILABLE.status, Reason.LATE.status})
_JSON_LENGTH = JSON_LENGTH.encode()
# A replica that is alive refuses a late request itself, which costs no connection. Chosen by hand.
_GRACE_SECONDS = 0.25
_MOST_JSON = 4096  # bytes of a body in which its own time limit is looked for


class HttpExchange:
    """A request of a client over HTTP; see `ReplicaExchange`.

    Args:
        request: Request of the client.
    """

    def __init__(self, request: ClientRequest) -> None:
        self._request = request

    @property
    def begin(self) -> float:
        """Time of the event loop at which the header had arrived."""
        return self._request.begin

    def own_timeout(self) -> float | None:
        """Return the time limit in seconds that the request itself sets; None if it sets none."""
        body, length = self._request.body, self._request.field(_JSON_LENGTH)
        if not length or not body:
            return None
        begun = bytearray(body[0][:_MOST_JSON])
        if b'"timeout"' not in begun:
            return None
        try:
            return timeout_of(begun, length)
        except RequestRefusedError:
            return None  # the replica tells the client what is wrong with it

    async def send(self, replica: ReplicaServer, deadline: float) -> ReplicaAnswer:
        """Send the request to a replica; see `ReplicaExchange.send`."""
        request, pool = self._request, replica.pool
        connection = await pool.acquire(deadline)
        answer = await connection.exchange(
            request_head(request, pool.address.token),
            request.body,
            deadline + _GRACE_SECONDS,
            has_body=request.method != b"HEAD",
        )
        pool.release(connection)
        answer.replica = replica.name
        return answer

    def is_refusal(self, answer: ReplicaAnswer) -> bool:
        """Return whether the replica refuses what another one may do."""
        return answer.status in _REFUSED


def request_head(request: ClientRequest, token: str) -> bytes:
    """Return request line and header fields with which a request is passed on.

    Args:
        request: Request of a client.
        token: Token that the replica demands, in place of the one that the client has presented.
    """
    fields = [
        b"%b: %b\r\n" % each
        for each in request.fields
        if each[0] not in HOP_BY_HOP and each[0] != b"authorization"
    ]
    line = b"%b %b HTTP/1.1\r\n" % (request.method, request.target)
    own = b"authorization: Bearer %b\r\ncontent-length: %d\r\n\r\n"
    return b"".join((line, *fields, own % (token.encode(), request.num_bytes)))
