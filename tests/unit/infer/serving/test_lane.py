"""Requests on their way to replicas: shared runs, bounds, deadlines, failures."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

pytest.importorskip("starlette")

from slipstream.infer.serving.lane import AHEAD, Lane, LaneLimits
from slipstream.infer.serving.refusals import Reason, RefusedError

LATER = 60.0


class Model:
    """Adds up rows, `seconds` later; knows what it was given."""

    def __init__(self, signature, loop, rows=1, seconds=0.0):
        self.loop = loop
        self.signature = signature({"x": (rows, 2)}, {"y": (rows,)}, most_rows=64)
        self.seconds, self.runs, self.at_once, self.most_at_once = seconds, [], 0, 0

    async def run(self, inputs, is_alone):
        async with self.free:
            self.runs.append(inputs["x"])
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            await asyncio.sleep(self.seconds)
            self.at_once -= 1
        return {"y": inputs["x"].sum(axis=1)}, self.seconds

    def lane(self, **limits):
        limits = LaneLimits(**{"runs": 1, "delay": 0.0, **limits})
        self.free = asyncio.Semaphore(limits.runs)
        return Lane(self.signature, self.run, limits, self.seconds, self.loop.time)

    def taken(self, number=0.0, rows=1):
        return self.signature.take({"x": np.full((rows, 2), number, np.float32)})


async def ask(lane, taken, seconds=LATER):
    return await lane.ask(taken, asyncio.get_running_loop().time() + seconds)


def test_each_request_gets_its_own_result(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop, seconds=0.001)
        lane = model.lane(runs=3)
        done = await asyncio.gather(*(ask(lane, model.taken(n)) for n in range(50)))
        assert [float(each.outputs["y"][0]) for each in done] == [2.0 * n for n in range(50)]
        assert model.most_at_once == 3
        await lane.drained()
        assert (lane.waiting, lane.running) == (0, 0)

    run_stepped(main)


def test_requests_that_wait_share_a_run(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop, rows=4, seconds=0.01)
        lane = model.lane(delay=0.005)
        done = await asyncio.gather(*(ask(lane, model.taken(n)) for n in range(8)))
        assert [float(each.outputs["y"][0]) for each in done] == [2.0 * n for n in range(8)]
        assert len(model.runs) == 2
        assert {each.shared for each in done} == {4}

    run_stepped(main)


def test_a_lone_request_waits_no_longer_than_it_may(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop, rows=4)
        done = await ask(model.lane(delay=0.02), model.taken(1.0))
        assert done.queued == pytest.approx(0.02)
        assert done.shared == 1
        assert len(model.runs) == 1

    run_stepped(main)


def test_a_request_of_many_rows_takes_several_runs(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop, rows=4)
        done = await ask(model.lane(), model.taken(3.0, rows=10))
        np.testing.assert_array_equal(done.outputs["y"], np.full(10, 6.0))
        assert len(model.runs) == 3

    run_stepped(main)


def test_more_than_may_wait_are_refused_at_once(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop, seconds=0.05)
        lane = model.lane(waiting=2)
        asked = [asyncio.ensure_future(ask(lane, model.taken(n))) for n in range(5 + AHEAD)]
        done = await asyncio.gather(*asked, return_exceptions=True)
        refused = [each for each in done if isinstance(each, RefusedError)]
        assert [each.reason for each in refused] == [Reason.BUSY] * 2
        assert all(each.retry_after is not None and each.retry_after > 0 for each in refused)

    run_stepped(main)


def test_what_is_admitted_keeps_its_deadline(signature, run_stepped):
    async def main(loop):
        model = Model(signature, loop, seconds=0.02)
        lane = model.lane()
        begin = loop.time()

        async def one(number):
            try:
                await ask(lane, model.taken(number), 0.2)
            except RefusedError as error:
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
        lane = model.lane()
        first = asyncio.ensure_future(ask(lane, model.taken(1.0)))
        second = asyncio.ensure_future(ask(lane, model.taken(2.0)))
        await asyncio.sleep(0.005)
        second.cancel()
        third = await ask(lane, model.taken(3.0))
        assert float((await first).outputs["y"][0]) == 2.0
        assert float(third.outputs["y"][0]) == 6.0
        assert [float(each[0, 0]) for each in model.runs] == [1.0, 3.0]
        await lane.drained()

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

        model.lane()
        lane = Lane(
            model.signature, lambda *x: model.run(*x), LaneLimits(runs=1, delay=0.0), 0.0, loop.time
        )
        model.run = bad
        asked = [ask(lane, model.taken(n)) for n in range(3)]
        done = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(each) for each in done[:1]] == [RuntimeError]
        assert float(done[2].outputs["y"][0]) == 4.0
        await lane.drained()

    run_stepped(main)
