"""The record of an answered request, and its line in the access log."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

import orjson

from slipstream.serve.batcher import InferenceResult

OK = "ok"
# Header fields of W3C's trace context, which OpenTelemetry passes on.
TRACE = ("traceparent", "tracestate")
_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")

Log = Callable[["RequestRecord"], None]


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """The record of a request, filled in while the server answers the request.

    Args:
        protocol: Protocol of the request, "rest" or "grpc".
        model: Name of the model; "" (the default) if the named model does not exist.
        version: Version of the model that answered.
        id: Identifier that the client gave to the request.
        trace: Header fields of the trace context that the client sent.
        outcome: Result: "ok" (the default), "gone" if the client hung up, otherwise the reason of
            the refusal.
        error: Error message that was sent in place of a result.
        num_bytes: Size of the request's body in bytes.
        rows: Number of rows of the request.
        seconds: Time in seconds from the first byte of the request to the answer.
        done: Result of the request; None if the model returned no result.
    """

    protocol: str
    model: str = ""
    version: str = ""
    id: str = ""
    trace: dict[str, str] = field(default_factory=dict[str, str])
    outcome: str = OK
    error: str = ""
    num_bytes: int = 0
    rows: int = 0
    seconds: float = 0.0
    done: InferenceResult | None = None

    def line(self) -> str:
        """Return the record as a line of JSON, with times in milliseconds."""
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
        content: dict[str, object] = {
            "time": now, "protocol": self.protocol, "model": self.model, "version": self.version,
            "outcome": self.outcome, "bytes": self.num_bytes, "rows": self.rows,
            "ms": round(self.seconds * 1e3, 3),
        }  # fmt: skip
        if self.done is not None:
            content["queued_ms"] = round(self.done.queue_seconds * 1e3, 3)
            content["run_ms"] = round(self.done.run_seconds * 1e3, 3)
            content["run_rows"] = self.done.batch_rows
        trace = _TRACE_PARENT.fullmatch(self.trace.get(TRACE[0], ""))
        more = {"id": self.id, "error": self.error, "trace_id": trace[1] if trace else ""}
        content |= {name: text for name, text in more.items() if text}
        return orjson.dumps(content).decode()


def log_to(file: TextIO) -> Log:
    """Return a function that writes a line to a file for each request."""

    def write(record: RequestRecord) -> None:
        file.write(record.line() + "\n")
        file.flush()

    return write
