"""Refusals, as HTTP and gRPC name them."""

from __future__ import annotations

import http

import grpc
import pytest

pytest.importorskip("starlette")

from slipstream.serve.refusals import Reason, RequestRefusedError, invalid

# google/rpc/code.proto names the status of HTTP for each but TOO_LARGE and ENCODED.
STATUS = {
    Reason.INVALID: (400, "INVALID_ARGUMENT"),
    Reason.UNAUTHENTICATED: (401, "UNAUTHENTICATED"),
    Reason.UNKNOWN: (404, "NOT_FOUND"),
    Reason.TOO_LARGE: (http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "OUT_OF_RANGE"),
    Reason.ENCODED: (http.HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "INVALID_ARGUMENT"),
    Reason.BUSY: (429, "RESOURCE_EXHAUSTED"),
    Reason.GONE: (499, "CANCELLED"),
    Reason.FAILED: (500, "INTERNAL"),
    Reason.UNAVAILABLE: (503, "UNAVAILABLE"),
    Reason.LATE: (504, "DEADLINE_EXCEEDED"),
}


@pytest.mark.parametrize("reason", Reason)
def test_reasons_have_the_status_that_google_gives_them(reason):
    assert (reason.status, reason.grpc) == STATUS[reason]
    assert reason.grpc in grpc.StatusCode.__members__


def test_a_refusal_has_its_message_and_when_to_ask_again():
    error = RequestRefusedError(Reason.BUSY, "later", 0.5)
    assert (str(error), error.reason, error.retry_after) == ("later", Reason.BUSY, 0.5)
    wrong = invalid("no")
    assert (str(wrong), wrong.reason, wrong.retry_after) == ("no", Reason.INVALID, None)
