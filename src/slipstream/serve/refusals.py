"""Why a request gets no result, as REST and gRPC say it."""

from __future__ import annotations

import enum

from slipstream.errors import SlipstreamError


class Reason(enum.Enum):
    """Kinds of refusals: the status of HTTP, and the name of gRPC's."""

    INVALID = 400, "INVALID_ARGUMENT"
    UNAUTHENTICATED = 401, "UNAUTHENTICATED"
    UNKNOWN = 404, "NOT_FOUND"
    TOO_LARGE = 413, "OUT_OF_RANGE"
    ENCODED = 415, "INVALID_ARGUMENT"
    BUSY = 429, "RESOURCE_EXHAUSTED"
    GONE = 499, "CANCELLED"
    FAILED = 500, "INTERNAL"
    UNAVAILABLE = 503, "UNAVAILABLE"
    LATE = 504, "DEADLINE_EXCEEDED"

    def __init__(self, status: int, grpc: str) -> None:
        self.status, self.grpc = status, grpc


class RequestRefusedError(SlipstreamError):
    """A request that gets no result.

    Args:
        reason: its kind.
        message: what was received, what is allowed and what to do.
        retry_after: seconds after which it may do; None: not by waiting.
    """

    def __init__(self, reason: Reason, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.reason, self.retry_after = reason, retry_after


def invalid(message: str) -> RequestRefusedError:
    """A request that is wrong as it is."""
    return RequestRefusedError(Reason.INVALID, message)
