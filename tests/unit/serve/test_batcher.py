"""Requests on their way to replicas: shared runs, bounds, deadlines, failures."""

from __future__ import annotations

import asyncio
import re

import numpy as np
import pytest

pytest.importorskip("starlette")

from slipstream.serve.batcher import AHEAD, Batcher, BatcherLimits
from slipstream.serve.refusals import Reason, RequestRefusedError

LATER = 60.0


class Model:
    """Adds up rows, `seconds` later; knows what it was given."""

    def __init__(self, signature, loop, rows=1, seconds=0.0):
        self.loop = loop
        self.signature = signature({"x": (rows, 2)}, {"y": (rows,)}, most_rows=64)
        self.seconds, self.runs, self.at_once, self.most_at_once = seconds, [], 0, 0
        self.reported = None  # seconds that a run says it took, if these are others

    async def run(self, inputs, is_alone):
        async with self.free:
            self.runs.append(inputs["x"])
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            await asyncio.sleep(self.seconds)
            self.at_once -= 1
        return {"y": inputs["x"].sum(axis=1)}, self.reported or self.seconds

    def batcher(self, **limits):
        limits = BatcherLimits(**{"runs": 1, "delay": 0.0, **limits})
        self.free = asyncio.Semaphore(limits.runs)
        return Batcher(self.signature, self.run, limits, self.seconds, self.loop.time)

    def taken(self, number=0.0, rows=1):
        return self.signature.check({"x": np.full((rows, 2), number, np.float32)})


async def ask(batcher, taken, seconds=LATER):
    return await batcher.submit(taken, asyncio.get_running_loop().time() + seconds)


def test_each_request_gets_its_own_result(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop, seconds=0.001)
        batcher = model.batcher(runs=3)
        done = await asyncio.gather(*(ask(batcher, model.taken(n)) for n in range(50)))
        assert [float(each.outputs["y"][0]) for each in done] == [2.0 * n for n in range(50)]
        assert model.most_at_once == 3
        await batcher.drained()
        assert (batcher.waiting, batcher.running) == (0, 0)

    run_stepped(main)


def test_requests_that_wait_share_a_run(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop, rows=4, seconds=0.01)
        batcher = model.batcher(delay=0.005)
        done = await asyncio.gather(*(ask(batcher, model.taken(n)) for n in range(8)))
        assert [float(each.outputs["y"][0]) for each in done] == [2.0 * n for n in range(8)]
        assert len(model.runs) == 2
        assert {each.batch_rows for each in done} == {4}

    run_stepped(main)


def test_a_lone_request_waits_no_longer_than_it_may(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop, rows=4)
        done = await ask(model.batcher(delay=0.02), model.taken(1.0))
        assert done.queue_seconds == pytest.approx(0.02)
        assert done.batch_rows == 1
        assert len(model.runs) == 1

    run_stepped(main)


def test_a_request_of_many_rows_takes_several_runs(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop, rows=4)
        done = await ask(model.batcher(), model.taken(3.0, rows=10))
        np.testing.assert_array_equal(done.outputs["y"], np.full(10, 6.0))
        assert len(model.runs) == 3

    run_stepped(main)


def test_more_than_may_wait_are_refused_at_once(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop, seconds=0.05)
        batcher = model.batcher(waiting=2)
        asked = [asyncio.ensure_future(ask(batcher, model.taken(n))) for n in range(5 + AHEAD)]
        done = await asyncio.gather(*asked, return_exceptions=True)
        refused = [each for each in done if isinstance(each, RequestRefusedError)]
        assert [each.reason for each in refused] == [Reason.BUSY] * 2
        assert all(each.retry_after is not None and each.retry_after > 0 for each in refused)

    run_stepped(main)


def test_what_is_admitted_keeps_its_deadline(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop, seconds=0.02)
        batcher = model.batcher()
        begin = loop.time()

        async def one(number):
            try:
                await ask(batcher, model.taken(number), 0.2)
            except RequestRefusedError as error:
                return error.reason
            return loop.time() - begin

        took = await asyncio.gather(*(one(number) for number in range(40)))
        done = [each for each in took if each is not Reason.BUSY]
        assert 3 <= len(done) <= 10
        assert max(done) <= 0.2

    run_stepped(main)


def test_one_that_gave_up_is_not_run(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop, seconds=0.02)
        batcher = model.batcher()
        first = asyncio.ensure_future(ask(batcher, model.taken(1.0)))
        second = asyncio.ensure_future(ask(batcher, model.taken(2.0)))
        await asyncio.sleep(0.005)
        second.cancel()
        third = await ask(batcher, model.taken(3.0))
        assert float((await first).outputs["y"][0]) == 2.0
        assert float(third.outputs["y"][0]) == 6.0
        assert [float(each[0, 0]) for each in model.runs] == [1.0, 3.0]
        await batcher.drained()

    run_stepped(main)


def test_a_failure_is_told_to_those_that_shared_the_run_and_the_next_goes_on(
    signature, run_stepped
):
    async def main(loop):
        model = Model(signature, loop, rows=2)
        good = model.run

        async def fail():
            raise RuntimeError("broken")

        def bad(*_):
            model.run = good
            return fail()

        model.batcher()
        batcher = Batcher(
            model.signature,
            lambda *x: model.run(*x),
            BatcherLimits(runs=1, delay=0.0),
            0.0,
            loop.time,
        )
        model.run = bad
        asked = [ask(batcher, model.taken(n)) for n in range(3)]
        done = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(each) for each in done[:1]] == [RuntimeError]
        assert float(done[2].outputs["y"][0]) == 4.0
        await batcher.drained()

    run_stepped(main)


def test_a_full_queue_says_how_long_it_would_take(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop, seconds=0.5)
        batcher = model.batcher(waiting=1)
        asked = [asyncio.ensure_future(ask(batcher, model.taken(n))) for n in range(2 + AHEAD)]
        await asyncio.sleep(0)
        assert (batcher.running, batcher.waiting) == (1 + AHEAD, 1)
        with pytest.raises(RequestRefusedError) as caught:
            await ask(batcher, model.taken())
        assert str(caught.value) == "1 requests wait, and no more may; send it again later"
        # Half of the run that is under way, two that are next, one that waits, and this one.
        assert caught.value.retry_after == pytest.approx(0.5 * 5)
        await asyncio.gather(*asked)

    run_stepped(main)


@pytest.mark.parametrize(
    ("rows", "runs", "count", "whole"),
    [
        (1, 1, 1, 1),
        (4, 1, 4, 1),
        (4, 1, 5, 2),
        (4, 2, 8, 1),
        (4, 2, 9, 2),
        (1, 3, 64, 22),
    ],
)
def test_a_request_is_admitted_if_its_runs_fit_into_its_time(
    signature, run_stepped, rows, runs, count, whole
):
    """A run counts as half as long again, and 15 % of the time is for the network."""

    async def main(loop):
        model = Model(signature, loop, rows=rows, seconds=1.0)
        batcher, needed = model.batcher(runs=runs), whole * 1.5 / 0.85
        with pytest.raises(RequestRefusedError) as caught:
            await ask(batcher, model.taken(rows=count), needed * 0.999)
        assert str(caught.value) == (
            f"the request would take about {whole:.3g} s, but {whole * 1.5 * 0.999:.3g} s are left"
            " before its deadline; send it again later, or allow a longer timeout"
        )
        assert caught.value.retry_after == pytest.approx(whole * 1.5 * 0.001)
        assert (batcher.waiting, batcher.running) == (0, 0)
        done = await ask(batcher, model.taken(rows=count), needed * 1.001)
        assert done.outputs["y"].shape == (count,)

    run_stepped(main)


def test_a_request_whose_deadline_is_past_has_no_time(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop, seconds=1.0)
        with pytest.raises(RequestRefusedError, match=r"but 0 s are left") as caught:
            await ask(model.batcher(), model.taken(), -2.0)
        assert caught.value.reason is Reason.BUSY
        assert caught.value.retry_after == pytest.approx(1.5 + 2 * 0.85)

    run_stepped(main)


def test_a_deadline_that_passes_in_line_is_told_with_the_time_that_it_waited(
    signature, run_stepped
):
    async def main(loop):
        model = Model(signature, loop, rows=4, seconds=0.0)
        batcher = model.batcher(delay=0.0)
        model.seconds = 3.0  # runs have become slow
        first = [asyncio.ensure_future(ask(batcher, model.taken(rows=4))) for _ in range(1 + AHEAD)]
        late = asyncio.ensure_future(ask(batcher, model.taken(), 1.0))
        on_time = asyncio.ensure_future(ask(batcher, model.taken(7.0)))
        with pytest.raises(
            RequestRefusedError,
            match=r"^the deadline of the request passed after 9\.000 s in the queue$",
        ) as caught:
            await late
        assert caught.value.reason is Reason.LATE
        done = await on_time
        assert (done.batch_rows, done.outputs["y"].tolist()) == (1, [14.0])
        assert (done.queue_seconds, done.run_seconds) == (pytest.approx(9.0), pytest.approx(3.0))
        await asyncio.gather(*first)

    run_stepped(main)


def test_runs_that_become_slower_count_by_a_tenth_each(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop, seconds=1.0)
        batcher = model.batcher()
        model.seconds = 2.0
        for expected in (1.1, 1.19):
            await ask(batcher, model.taken())
            with pytest.raises(RequestRefusedError, match=f"about {expected:.3g} s"):
                await ask(batcher, model.taken(), 1.0)

    run_stepped(main)


def test_the_safety_factor_follows_the_time_that_requests_take(signature, run_stepped):
    """Requests that take twice their limit raise it by 0.03 x 0.99, others lower it by 0.0003."""

    async def main(loop):
        model = Model(signature, loop, seconds=1.0)

        async def factor_after(*seconds):
            batcher = model.batcher()
            for model.seconds in seconds:
                await ask(batcher, model.taken(), 1e12)
            model.seconds = 1.0
            with pytest.raises(RequestRefusedError) as caught:
                await ask(batcher, model.taken(), 0.0)
            (expected,) = re.findall("about ([0-9.]+) s", str(caught.value))
            return caught.value.retry_after / float(expected)

        assert await factor_after(1.0) == pytest.approx(1.5 - 0.0003)
        assert await factor_after(1.0, 1.0, 1.0) == pytest.approx(1.5 - 0.0009)
        assert await factor_after(10.0) == pytest.approx(1.5 + 0.0297, rel=1e-3)
        assert await factor_after(*[1.0] * 1200) == pytest.approx(1.2)
        model.reported = 1.0  # the way to the replica takes the rest
        assert await factor_after(*[10.0] * 90) == pytest.approx(4.0)

    run_stepped(main)


def test_several_runs_of_a_request_are_measured_each(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop, rows=4, seconds=1.0)
        batcher = model.batcher()
        done = await ask(batcher, model.taken(rows=12))
        assert (done.run_seconds, done.batch_rows, done.queue_seconds) == (
            pytest.approx(3.0),
            12,
            0.0,
        )
        with pytest.raises(RequestRefusedError, match=r"about 1 s"):
            await ask(batcher, model.taken(), 1.0)

    run_stepped(main)


@pytest.mark.parametrize(("is_alone", "count"), [(True, 1), (False, 1), (True, 2)])
def test_a_run_is_alone_where_its_only_request_is(signature, run_stepped, is_alone, count):
    found = []

    async def main(loop):
        model = Model(signature, loop, rows=4)
        limits = BatcherLimits(runs=1, delay=0.01)

        async def run(inputs, is_alone):
            found.append(is_alone)
            return {"y": inputs["x"].sum(axis=1)}, 0.0

        batcher = Batcher(model.signature, run, limits, 0.0, loop.time)
        until = loop.time() + LATER
        await asyncio.gather(
            *(batcher.submit(model.taken(), until, is_alone) for _ in range(count))
        )

    run_stepped(main)
    assert found == [is_alone and count == 1]


def test_a_run_that_nobody_waits_for_any_more_is_cancelled(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop, rows=2, seconds=50.0)
        batcher = model.batcher(delay=0.01)
        asked = [asyncio.ensure_future(ask(batcher, model.taken(), 1000.0)) for _ in range(2)]
        await asyncio.sleep(1)
        asked[0].cancel()
        await asyncio.sleep(1)
        assert batcher.running == 1
        asked[1].cancel()
        await batcher.drained()
        assert loop.time() == pytest.approx(1002)
        assert batcher.running == 0

    run_stepped(main)


def test_what_a_lane_holds_if_nothing_is_said():
    limits = BatcherLimits(runs=3)
    assert (limits.runs, limits.waiting, limits.delay) == (3, 1024, 0.002)


def test_requests_share_a_run_only_as_far_as_all_of_them_fit(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop, rows=4, seconds=1.0)
        batcher = model.batcher(delay=0.5)
        counts = (2, 1, 2, 2, 3)
        done = await asyncio.gather(*(ask(batcher, model.taken(rows=each)) for each in counts))
        assert [each.batch_rows for each in done] == [3, 3, 4, 4, 3]

    run_stepped(main)


def test_a_model_without_rows_runs_each_request_by_itself(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop)
        model.signature = signature({"x": (1, 2)}, {"y": (3,)})
        seconds = []

        async def run(inputs, is_alone):
            seconds.append(loop.time())
            assert not is_alone
            return {"y": np.zeros(3, np.float32)}, 0.0

        batcher = Batcher(model.signature, run, BatcherLimits(runs=1, delay=10.0), 1.0, loop.time)
        with pytest.raises(RequestRefusedError, match=r"about 1 s"):
            await ask(batcher, model.taken(), 1.0)
        done = await asyncio.gather(*(ask(batcher, model.taken()) for _ in range(3)))
        assert [each.batch_rows for each in done] == [1, 1, 1]
        # None of them waited for others.
        assert seconds == [1000.0] * 3

    run_stepped(main)


def test_a_request_that_shares_waits_from_when_the_first_came(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop, rows=4)
        batcher = model.batcher(delay=1.0)
        first = asyncio.ensure_future(ask(batcher, model.taken()))
        await asyncio.sleep(0.75)
        second = await ask(batcher, model.taken())
        assert ((await first).queue_seconds, second.queue_seconds) == (1.0, 0.25)
        assert (second.batch_rows, len(model.runs)) == (2, 1)

    run_stepped(main)
