"""Replicas in processes: what one cannot finish, another does."""

from __future__ import annotations

import asyncio
import os
import signal

import numpy as np
import pytest

pytest.importorskip("starlette")

from slipstream.errors import UsageError
from slipstream.infer.package.package import read
from slipstream.serve.worker_pool import WorkerPool

pytestmark = pytest.mark.multiprocess


def test_runs_of_replicas_that_are_killed_are_run_by_others(compiled):
    check = read(compiled).check

    async def main():
        pool = WorkerPool(2, None)

        def run(_):
            return asyncio.ensure_future(pool.run("model/1", check.inputs, False))

        ready = await pool.load("model/1", compiled)
        assert ready.manifest == read(compiled).manifest
        assert ready.runs >= 2
        for victim in pool.replicas:
            pid = victim.pid
            asked = [*map(run, range(20))]
            await asyncio.sleep(0)
            os.kill(pid, signal.SIGKILL)
            asked += [*map(run, range(20))]
            for outputs, seconds in await asyncio.gather(*asked):
                assert seconds > 0
                for name, array in check.outputs.items():
                    np.testing.assert_allclose(outputs[name], array, rtol=1e-5)
            while victim.pid == pid or "model/1" not in victim.keys:
                await asyncio.sleep(0.02)
        await pool.unload("model/1")
        assert not any(each.keys for each in pool.replicas)
        await pool.close()

    asyncio.run(asyncio.wait_for(main(), 120))


def test_what_is_no_package_is_refused_and_the_team_goes_on(compiled, tmp_path):
    (tmp_path / "bad.slip").write_bytes(b"bad")
    check = read(compiled).check

    async def main():
        pool = WorkerPool(2, None)
        with pytest.raises(UsageError, match=r"bad\.slip"):
            await pool.load("bad/1", tmp_path / "bad.slip")
        await pool.load("model/2", compiled)
        outputs, _ = await pool.run("model/2", check.inputs, False)
        assert set(outputs) == set(check.outputs)
        await pool.close()

    asyncio.run(asyncio.wait_for(main(), 120))
