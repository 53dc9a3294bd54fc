"""Lines of the access log."""

from __future__ import annotations

import datetime
import io
import json

import pytest

pytest.importorskip("starlette")

from slipstream.serve.batcher import InferenceResult
from slipstream.serve.record import RequestRecord, log_to

PARENT = f"00-{'ab' * 16}-{'cd' * 8}-01"


def test_a_line_has_what_was_asked_and_times_in_milliseconds():
    record = RequestRecord(
        protocol="rest", model="m", version="2", id="7", trace={"traceparent": PARENT},
        num_bytes=9, rows=3, seconds=0.0123456, done=InferenceResult({}, 0.0011116, 0.0022224, 4),
    )  # fmt: skip
    found = json.loads(record.line())
    time = datetime.datetime.fromisoformat(found.pop("time"))
    now = datetime.datetime.now(datetime.timezone.utc)
    assert datetime.timedelta(0) <= now - time < datetime.timedelta(minutes=1)
    assert time.microsecond % 1000 == 0
    assert found == {
        "protocol": "rest", "model": "m", "version": "2", "outcome": "ok", "bytes": 9, "rows": 3,
        "ms": 12.346, "queued_ms": 1.112, "run_ms": 2.222, "run_rows": 4, "id": "7",
        "trace_id": "ab" * 16,
    }  # fmt: skip


def test_what_is_not_known_is_left_out():
    found = json.loads(RequestRecord(protocol="grpc").line())
    del found["time"]
    assert found == {
        "protocol": "grpc", "model": "", "version": "", "outcome": "ok", "bytes": 0, "rows": 0,
        "ms": 0.0,
    }  # fmt: skip
    assert json.loads(RequestRecord(protocol="grpc", error="why").line())["error"] == "why"


@pytest.mark.parametrize(
    "parent",
    [
        PARENT[:-1], PARENT + "0", PARENT.upper(), PARENT.replace("ab", "ag"),
        PARENT.replace("-", "_"), "", f"00-{'ab' * 15}-{'cd' * 8}-01",
        f"00-{'ab' * 16}-{'cd' * 7}-01",
    ],
)  # fmt: skip
def test_a_trace_that_is_none_has_no_identity(parent):
    assert "trace_id" not in json.loads(
        RequestRecord(protocol="rest", trace={"traceparent": parent}).line()
    )


def test_each_request_is_a_line_that_is_there_at_once(tmp_path):
    with (tmp_path / "log").open("w") as file:
        log = log_to(file)
        for name in "12":
            log(RequestRecord(protocol="rest", id=name))
        lines = (tmp_path / "log").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["1", "2"]


def test_a_log_may_be_kept_in_memory():
    file = io.StringIO()
    log_to(file)(RequestRecord(protocol="rest"))
    assert file.getvalue().endswith("}\n")
