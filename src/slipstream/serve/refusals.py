"""The reasons why a request receives no result, and their codes in REST and gRPC."""

from __future__ import annotations

import enum

from slipstream.errors import SlipstreamError


class Reason(enum.Enum):
    """A reason for a refusal, with its HTTP status and the name of its gRPC status."""

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
    """Error: a request receives no result.

    Args:
        reason: Reason of the refusal.
        message: Text that names the received value, the allowed values and a remedy.
        retry_after: Seconds after which the same request may succeed; None (the default) if waiting
            does not help.
    """

    def __init__(self, reason: Reason, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.reason, self.retry_after = reason, retry_after


def invalid(message: str) -> RequestRefusedError:
    """Return the error for an invalid request."""
    return RequestRefusedError(Reason.INVALID, message)
