"""Requests where they come in: what is recorded of each, and what it may take."""

from __future__ import annotations

import asyncio
import logging
import time

import numpy as np
import pytest

pytest.importorskip("starlette")

from slipstream.serve.handler import RequestHandler
from slipstream.serve.protocol.messages import InferenceCall
from slipstream.serve.refusals import Reason, RequestRefusedError

X = np.ones((2, 2), np.float32)


@pytest.fixture
def records():
    return []


@pytest.fixture
def ask(repository, records):
    """Ask a model once, and return the sums of its rows."""

    def ask(call=None, *, model="m", version="", fields=None, seconds=60.0, act=None):
        async def main():
            models = repository("m=a.slip", "m=b.slip@0%", "n=c.slip")
            for each in models.specs[:2]:
                await models.load(each.name, each.version)
            handler = RequestHandler(models, seconds, [records.append, records.append])
            with handler.request("rest", model, version, fields or {}) as request:
                if act is not None:
                    act()
                done = await request.answer(call or InferenceCall({"x": X}))
            assert request.record.done is done
            return done.outputs["y"].tolist()

        return asyncio.run(main())

    return ask


def test_a_request_that_is_answered_is_told_to_each_log(ask, records):
    assert ask(InferenceCall({"x": X[:1]}, id="i" * 129)) == [2.0]
    record, same = records
    assert record is same
    assert (record.protocol, record.model, record.version) == ("rest", "m", "1")
    assert (record.id, record.rows, record.outcome, record.error) == ("i" * 128, 1, "ok", "")
    assert (record.done.batch_rows, record.done.run_seconds) == (1, 0.25)
    assert 0 < record.seconds < 60


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_version_that_is_named_answers(ask, records, version):
    ask(version=version)
    assert records[0].version == version


@pytest.mark.parametrize(
    ("asked", "outcome", "model"),
    [
        ({"model": "other"}, "unknown", ""),
        ({"version": "3"}, "unknown", ""),
        ({"model": "n"}, "unavailable", ""),
        ({"call": InferenceCall({})}, "invalid", "m"),
        ({"call": InferenceCall({"x": X}, seconds=-1.0)}, "busy", "m"),
        ({"seconds": -1.0}, "busy", "m"),
        ({"call": InferenceCall({"x": X}, seconds=60.0), "seconds": -1.0}, "busy", "m"),
    ],
)
def test_refusals_are_recorded_with_their_reason(ask, records, asked, outcome, model):
    with pytest.raises(RequestRefusedError) as caught:
        ask(**asked)
    assert caught.value.reason.name.lower() == outcome
    record = records[0]
    assert (record.outcome, record.error) == (outcome, str(caught.value))
    assert (record.model, record.done) == (model, None)
    assert record.seconds > 0


def test_a_failure_of_a_model_is_the_servers_and_is_logged(ask, records, sums, caplog):
    sums.fault = ValueError("secret")
    with caplog.at_level(logging.ERROR), pytest.raises(RequestRefusedError) as caught:
        ask()
    assert str(caught.value) == "the model 'm' failed; see the log"
    assert caught.value.reason is Reason.FAILED
    assert (records[0].outcome, records[0].error) == ("failed", "ValueError('secret')")
    assert "m, version 1, failed" in caplog.text


def test_a_request_that_is_cancelled_is_of_a_client_that_is_gone(ask, records):
    def cancel():
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        ask(act=cancel)
    assert (records[0].outcome, records[0].error) == ("gone", "")


@pytest.mark.parametrize(
    ("fields", "trace"),
    [
        ({"traceparent": "p" * 513, "tracestate": "s", "other": "x"},
         {"traceparent": "p" * 512, "tracestate": "s"}),
        ({"traceparent": "", "tracestate": "a\r\nb"}, {}),
        ({"traceparent": "é", "tracestate": "s"}, {"tracestate": "s"}),
    ],
)  # fmt: skip
def test_a_trace_is_kept_where_it_can_be_given_back(ask, records, fields, trace):
    ask(fields=fields)
    assert records[0].trace == trace


def test_a_model_that_is_used_is_not_closed_meanwhile(repository, sums):
    async def main():
        models = repository("m=a.slip")
        served = await models.load("m", "1")
        with served.used():
            with served.used():
                closing = asyncio.ensure_future(served.close())
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert sums.unloaded == []
        await closing
        assert sums.unloaded == ["m/1/1"]

    asyncio.run(main())


def test_a_run_is_alone_where_no_other_request_uses_the_model(repository, sums):
    async def main():
        served = await repository("m=a.slip").load("m", "1")
        taken, until = served.signature.check({"x": X}), time.monotonic() + 60
        with served.used():
            await served.submit(taken, until)
            with served.used():
                await served.submit(taken, until)
            await served.submit(taken, until)

    asyncio.run(main())
    assert sums.alone == [True, False, True]
